"""How fast one host proves a model on its disk, and takes one from a peer, beside dd.

    python benchmarks/weights_node.py --gigabytes 10 --directory DIRECTORY

No network but the loopback, no hub. One line of JSON: seconds and GB/s of

- dd: reading all files from a cold cache, one after another;
- prove: reading and hashing them, cold, by four threads, as a run with weights_rehash does;
- dd_copy: copying them by dd, cold, to the disk's end (fsync);
- take: a peer on this host sends them, they are hashed, written and on the disk;

and `look_seconds`, what a converged run needs to know a model of 163 files again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.node.weights.models import Model, look, write_record
from vllm_ansible.node.weights.store.gathering import Gathering, Part
from vllm_ansible.node.weights.store.manifest import Manifest, parse
from vllm_ansible.node.weights.store.receiver import Peer
from vllm_ansible.node.weights.store.sender import Sender
from vllm_ansible.node.weights.store.shelf import Shelf

FILES = 16
BLOCK = 1 << 24
KEY = b"k" * 32
LOOPBACK = "127.0.0.1"


def silent(*_: Any) -> None:
    """Report to nobody."""


def make(directory: Path, size: int) -> Manifest:
    """Write a model of so many bytes and return what it consists of."""
    directory.mkdir(parents=True)
    block, files = os.urandom(BLOCK), []
    for number in range(FILES):
        digest, path = hashlib.sha256(), directory / f"model-{number}.safetensors"
        with path.open("wb") as content:
            for part in range(size // FILES // BLOCK):
                piece = part.to_bytes(8, "big") + block[8:]
                content.write(piece)
                digest.update(piece)
        found = {"name": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()}
        files.append(found)
    return parse("model", "org/model", {"revision": "main", "files": files})


def cold(directory: Path) -> None:
    """Let nothing of the files stay in memory."""
    for path in directory.iterdir():
        if path.is_file():
            with path.open("rb") as content:
                os.fsync(content.fileno())
                os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(size: int, act: Callable[[], None]) -> dict[str, float]:
    """Return seconds, rate and processor seconds of this process and its children."""
    before, started = used(), time.monotonic()
    act()
    seconds = time.monotonic() - started
    return {
        "seconds": round(seconds, 2),
        "gbs": round(size / seconds / 1e9, 2),
        "processor_seconds": round(used() - before, 2),
    }


def used() -> float:
    """Return the processor seconds so far."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def dd(source: Path, target: Path | None = None) -> None:
    """Read all files, or copy them and wait for the disk."""
    for path in sorted(source.glob("*.safetensors")):
        out = [f"of={target / path.name}", "conv=fsync"] if target else ["of=/dev/null"]
        subprocess.run(["dd", f"if={path}", *out, "bs=1M", "status=none"], check=True)


def gather(manifest: Manifest, shelf: Shelf, peers: list[Peer], rehash: bool = False) -> None:
    """Complete the model on a shelf."""
    part = Part(manifest, shelf, dict.fromkeys((one.name for one in manifest.files), peers))
    Gathering([part], KEY, LOOPBACK, None, 4, rehash).run(silent)


def look_again(directory: Path) -> float:
    """Return the seconds that a model of as many files as DeepSeek-R1's takes to be known again."""
    model = Model("hub", "org/many")
    place = Path(model.place(str(directory)))
    place.mkdir(parents=True)
    files = []
    for number in range(163):
        path = place / f"model-{number + 1:05}-of-000163.safetensors"
        path.write_bytes(b"x")
        files.append({"name": path.name, "bytes": 1, "mtime_ns": path.stat().st_mtime_ns})
    write_record(model, str(directory), {"path": str(place), "files": files})
    started = time.monotonic()
    if look(model, str(directory)) is None:
        raise SystemExit("a model that is there was not known again")
    return round(time.monotonic() - started, 4)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--directory", help="on the disk to measure")
    wanted = parser.parse_args()
    with TemporaryDirectory(dir=wanted.directory) as place:
        first, second = (Shelf(f"{place}/{name}", "model") for name in ("first", "second"))
        final = Path(first.final)
        manifest = make(final, int(wanted.gigabytes * 1e9))
        size, found = manifest.bytes, {}
        cold(final)
        found["dd"] = timed(size, lambda: dd(final))
        cold(final)
        found["prove"] = timed(size, lambda: gather(manifest, first, [], rehash=True))
        copy = Path(place, "copy")
        copy.mkdir()
        cold(final)
        found["dd_copy"] = timed(size, lambda: dd(final, copy))
        sender = Sender((LOOPBACK, 0), KEY, {"model": (first, manifest)})
        threading.Thread(target=sender.serve_forever, daemon=True).start()
        peer = Peer("first", LOOPBACK, sender.server_address[1])
        cold(final)
        found["take"] = timed(size, lambda: gather(manifest, second, [peer]))
        ratios = {
            "prove_of_dd": round(found["prove"]["seconds"] / found["dd"]["seconds"], 2),
            "take_of_dd_copy": round(found["take"]["seconds"] / found["dd_copy"]["seconds"], 2),
        }
        ratios["look_seconds"] = look_again(Path(place, "many"))
        print(json.dumps({"bytes": size, "processors": os.cpu_count(), **ratios, **found}))


if __name__ == "__main__":
    main()
