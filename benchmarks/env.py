#!/usr/bin/env python3
"""What the ways to give every host the engine's environment cost: built, shared, packed.

sudo .venv/bin/python benchmarks/env.py --hosts 16 --round-trip-ms 0.5 --gbit 10

Processor time and sizes are measured on this machine. What a shared directory asks of its server is
counted by a real NFS client in a virtual machine. Both are added up for a round trip and a rate of
the server: an import asks one thing after the other, and all hosts share what the server sends.
Figures are printed and written as they come. Needs root, qemu, mmdebstrap and squashfs-tools, and
half an hour or more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env_machine import ARCHIVE, IMAGE, counted, disk
from processors import busy_share

from vllm_ansible.environment.request import environment_request
from vllm_ansible.node.environment import build as environment

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/engine-cpu.txt"
Keep = Callable[[str, dict[str, Any]], None]
PACKAGES = [ROOT / "packages" / name for name in ("vllm_cpu_ray", "vllm_guard", "vllm_name")]


def main() -> None:
    """Measure each way once and print what docs/environment.md wants to know."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--round-trip-ms", type=float, default=0.5)
    parser.add_argument("--gbit", type=float, default=10.0, help="rate of the server, in all")
    parser.add_argument("--directory", type=Path, help="where to work; temporary by default")
    parser.add_argument("--output", type=Path, help="write all figures as JSON")
    parser.add_argument("--here", type=Path, help="what an earlier run wrote, not measured again")
    options = parser.parse_args()
    share = busy_share()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {os.cpu_count()} cores")
    directory = Path(tempfile.mkdtemp(prefix="env-", dir=options.directory))
    found: dict[str, dict[str, dict[str, Any]]] = {}

    def keep(part: str, way: str, figures: dict[str, Any]) -> None:
        found.setdefault(part, {})[way] = figures
        told = ", ".join(f"{key} {value:,}" for key, value in figures.items())
        print(f"{part:6} {way:22} {told}", flush=True)
        if options.output:
            options.output.write_text(json.dumps(found, indent=1) + "\n")

    try:
        place = build(directory)
        if options.here:
            found["here"] = json.loads(options.here.read_text())["here"]
            pack(directory, place)
        else:
            on_this_machine(directory, place, lambda *one: keep("here", *one))
        print(f"this machine was {share():.0%} busy so far", flush=True)
        base = Path(os.readlink(place / "bin/python")).parents[1]
        shared = disk(directory, place)
        counted(directory, shared, base, lambda *one: keep("share", *one))
        print(f"this machine was {share():.0%} busy in all")
    finally:
        shutil.rmtree(directory)
    rate = options.gbit * 1e9 / 8
    trip = options.round_trip_ms / 1000
    for way, sums in added_up(found["here"], found["share"], options.hosts, trip, rate).items():
        keep("sums", way, sums)


def build(directory: Path) -> Path:
    """Return an environment as a host builds it, the packages being in uv's cache."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    request = environment_request(LOCK, PACKAGES, "3.11")
    place = environment.directory(str(directory), request["digest"])
    wanted = {
        **request,
        **{"cluster_dir": str(directory), "directory": str(place), "requirements": str(LOCK)},
        **{"uv": uv, "find_links": [], "torch_backend": "cpu", "environment": {}},
        **{"compiles": False, "compile_bytecode": True},
    }
    environment.build(wanted, lambda *_: None)
    return place


def on_this_machine(directory: Path, place: Path, keep: Keep) -> None:
    """Tell seconds and processor seconds of what each way does on a host, and sizes in bytes."""
    shutil.rmtree(place)
    before = os.times()
    began = time.monotonic()
    build(directory)
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    built = {"seconds": round(time.monotonic() - began, 1), "processor_seconds": round(used, 1)}
    keep("built", {**built, "files": len(files), "bytes": size})

    for way, figures in pack(directory, place).items():
        keep(way, figures)
    image, archive, out = directory / IMAGE, directory / ARCHIVE, directory / "out"
    out.mkdir()
    keep("archive unpacked", timed(["tar", "-C", str(out), "-xzf", str(archive)]))
    shutil.rmtree(out)

    keep("import", best(lambda: timed(importing(place))))

    def mounted() -> dict[str, Any]:
        # What a mount has unpacked before is gone with it.
        subprocess.run(["mount", "-o", "loop,ro", str(image), str(out)], check=True)
        try:
            return timed(importing(out))
        finally:
            subprocess.run(["umount", str(out)], check=True)

    out.mkdir()
    keep("import, image mounted", best(mounted))


def pack(directory: Path, place: Path) -> dict[str, dict[str, Any]]:
    """Make the image and the archive; return what that took and their sizes in bytes."""
    image, archive = directory / IMAGE, directory / ARCHIVE
    squash = ["mksquashfs", str(place), str(image), "-comp", "zstd"]
    # The level squashfs-tools takes by itself, 15, needs minutes for torch.
    squash += ["-Xcompression-level", "3", "-no-progress", "-quiet"]
    tar = ["tar", "-C", str(place), "-I", "gzip -1", "-cf", str(archive), "."]
    return {
        "image packed": {**timed(squash), "bytes": image.stat().st_size},
        "archive packed": {**timed(tar), "bytes": archive.stat().st_size},
    }


def importing(place: Path) -> list[str]:
    """Return the command of the check of imports."""
    return [str(place / "bin/python"), "-c", environment.IMPORT_CHECK]


def best(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the quickest of three."""
    return min((measure() for _ in range(3)), key=lambda one: float(one["seconds"]))


def timed(command: Sequence[str]) -> dict[str, Any]:
    """Return seconds and processor seconds of a command, which must succeed."""
    began = time.monotonic()
    process = subprocess.Popen(
        list(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"env: {command[0]} failed")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def added_up(
    here: Mapping[str, Mapping[str, Any]],
    there: Mapping[str, Mapping[str, Any]],
    hosts: int,
    round_trip: float,
    rate: float,
) -> dict[str, dict[str, float]]:
    """Return seconds until all hosts have imported, first and next time; server bytes/s, seconds.

    Each host works by itself; what the server sends, all of them share.
    """

    def asked(way: str) -> float:
        return there[way]["operations"] * round_trip + there[way]["bytes"] * hosts / rate

    imported = here["import"]["seconds"]
    from_image = here["import, image mounted"]["seconds"]
    built = here["built"]["seconds"]
    archived = here["archive packed"]["seconds"] + here["archive unpacked"]["seconds"]
    imaged = here["image packed"]["seconds"]
    ways = {
        # The build ends with its first import.
        "built by each": (built, imported),
        "tree": (
            built + asked("tree, first import") + imported,
            asked("tree, next import") + imported,
        ),
        "copy": (built + archived + asked("archive read") + imported, imported),
        "image": (
            built + imaged + asked("image, first import") + from_image,
            asked("image, next import") + imported,
        ),
    }
    return {
        way: {"first": round(first, 1), "next": round(later, 1)}
        for way, (first, later) in ways.items()
    }


if __name__ == "__main__":
    main()
