"""Download a model from the hub, resuming what is there, and say how far it is.

Run by the engine's Python: from_hub.py MODEL REVISION OUT. Writes JSON lines (progress, failed,
result).
The token, if any, is read by huggingface_hub from the file HF_TOKEN_PATH names.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

# Other formats of the same weights.
UNWANTED = ["original/*", "*.pth", "*.onnx", "*.msgpack", "*.h5", "*.ot", "*.gguf"]


def say(**message: Any) -> None:
    """Write one message."""
    print(json.dumps(message), flush=True)


def fail(msg: str, **details: str) -> None:
    """End with what a person needs to go on."""
    say(failed=msg, details=details)
    sys.exit(1)


def bytes_under(directory: Path) -> int:
    """Return how much of the download is on the disk."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # a part was renamed to the whole
            continue
    return total


def watch(out: Path, total: int, done: threading.Event) -> None:
    """Report every second until the download ends."""
    while not done.wait(1):
        say(progress=[min(bytes_under(out), total), total, "bytes", "downloading"])


def download(model: str, revision: str | None, out: Path) -> None:
    """Fetch one revision whole."""
    info = HfApi().model_info(model, revision=revision, files_metadata=True)
    names = [one.rfilename for one in info.siblings or []]
    unwanted = list(UNWANTED)
    if any(name.endswith(".safetensors") for name in names):
        unwanted.append("*.bin")
    wanted = [
        one
        for one in info.siblings or []
        if not any(Path(one.rfilename).match(pattern) for pattern in unwanted)
    ]
    total = sum(one.size or 0 for one in wanted)
    free = shutil.disk_usage(out).free + bytes_under(out)
    if total > free:
        fail(
            f"{model} does not fit on the disk",
            expected=f"{total / 2**30:.1f} GiB free",
            found=f"{free / 2**30:.1f} GiB",
            where=str(out),
            fix="free some space, or set models_dir to a larger disk",
        )
    done = threading.Event()
    threading.Thread(target=watch, args=(out, total, done), daemon=True).start()
    snapshot_download(model, revision=info.sha, local_dir=out, ignore_patterns=unwanted)
    done.set()
    for one in wanted:
        found = (out / one.rfilename).stat().st_size
        if one.size is not None and found != one.size:
            fail(
                f"{one.rfilename} came back with another size",
                expected=f"{one.size} bytes, as the hub says",
                found=f"{found} bytes",
                where=str(out / one.rfilename),
                fix="run the stage weights again; if it stays so, check the proxy or mirror",
            )
    # What huggingface_hub keeps there is of use only while the download is not whole.
    shutil.rmtree(out / ".cache", ignore_errors=True)
    say(result={"revision": info.sha})


def main() -> None:
    """Download, and turn what can go wrong into words."""
    model, revision, out = sys.argv[1], sys.argv[2] or None, Path(sys.argv[3])
    try:
        download(model, revision, out)
    except GatedRepoError:
        fail(
            f"{model} is gated",
            expected="a token that was granted access",
            found="access denied",
            where=model,
            fix="accept its terms on the hub, and set huggingface_token_file to your token's file",
        )
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        fail(
            f"the hub has no {model}" + (f" at {revision}" if revision else ""),
            expected="a model this host may read",
            found=type(error).__name__,
            where=model,
            fix="check the spelling; for a private model set huggingface_token_file",
        )
    # The hub's library changed its client twice (requests, httpx, httpx2), and so what it raises.
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        fail(
            f"{model} cannot be downloaded",
            expected="the hub, reachable from this host",
            found=f"{type(error).__name__}: {lines[-1]}",
            where=model,
            fix="set a proxy or HF_ENDPOINT in sources_environment, or name a directory instead",
        )


main()
