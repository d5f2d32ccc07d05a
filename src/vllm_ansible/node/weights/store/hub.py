"""Take files from the hub or object storage, by their libraries, and prove them as they come."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...failure import Failure
from ..programs import Program, write
from .follower import Follower
from .incoming import Incoming
from .manifest import File, Manifest
from .shelf import Shelf

LOOK_SECONDS = 0.05
# A file that came wrong is fetched once more: after that, the hub or what lies between is wrong.
TRIES = 2
HUB_FIX = "check what lies between: a proxy, or the mirror that HF_ENDPOINT names"
BUCKET_FIX = (
    "upload the file again, or correct its line in SHA256SUMS, and check what lies between: a proxy"
)


@dataclass(frozen=True)
class Hub:
    """How to reach what is outside: a Python with the libraries, the program, its variables."""

    python: str
    program: Mapping[str, str]
    environment: Mapping[str, str]
    workers: int = 4
    stall_seconds: float = 60.0


def fetch(
    hub: Hub,
    manifest: Manifest,
    shelf: Shelf,
    files: Sequence[File],
    arrived: Callable[[Incoming], None],
    says: Callable[[str], None],
) -> None:
    """Fetch files in their order; each is on the shelf once it is what the hub has a digest of.

    says is told what the program does, such as for how long the hub lets it wait. Raises
    WeightsError in the program's words, Failure for a file that comes wrong again.
    """
    left = list(files)
    for _ in range(TRIES):
        left = _once(hub, manifest, shelf, left, arrived, says)
        if not left:
            return
    raise Failure(
        f"checksum mismatch: {left[0].name} of {manifest.model} from {manifest.keeper}",
        expected=f"sha256 {left[0].sha256}" if left[0].sha256 else f"git blob {left[0].git}",
        found=f"another checksum after {TRIES} attempts",
        where=manifest.model,
        fix=BUCKET_FIX if left[0].etag else HUB_FIX,
    )


def _once(
    hub: Hub,
    manifest: Manifest,
    shelf: Shelf,
    files: Sequence[File],
    arrived: Callable[[Incoming], None],
    says: Callable[[str], None],
) -> list[File]:
    """Fetch files once and return those that came wrong."""
    followers = {one.name: Follower(shelf, one, arrived) for one in files}
    request = os.path.join(shelf.store, "request.json")
    with open(request, "w", encoding="utf-8") as handle:
        json.dump(_request(hub, manifest, shelf, files), handle)
    main = write(os.path.join(shelf.store, "program"), hub.program)
    program = Program([hub.python, main, request], hub.environment)
    written: set[str] = set()
    failed: dict[str, Any] = {}
    wrong, ended = [], False
    try:
        with ThreadPoolExecutor(max(1, hub.workers)) as pool:
            while not ended or (followers and not failed):
                ended = program.wait(0 if ended else LOOK_SECONDS)
                for message in program.news():
                    written |= {message["file"]} if "file" in message else set()
                    if "progress" in message:
                        says(message["progress"][3])
                    failed = message if "failed" in message else failed
                if ended and not failed and followers.keys() - written:
                    failed = {"failed": ""}
                # The program goes by their order: of those it has not written, the first are open.
                unwritten = [name for name in followers if name not in written][: hub.workers]
                open_now = [name for name in followers if name in written or name in unwritten]
                looks = pool.map(
                    _look, map(followers.__getitem__, open_now), itertools.repeat(written)
                )
                looked = dict(zip(open_now, looks))  # noqa: B905  hosts have Python 3.9
                for name in [name for name, whole in looked.items() if whole and name in written]:
                    follower = followers.pop(name)
                    wrong += [] if follower.right() else [follower.file]
    finally:
        if not ended:
            program.kill()
    what = f"{manifest.model} cannot be fetched from {manifest.keeper}"
    program.judge(what, manifest.model, failed if failed.get("failed") else None)
    return wrong


def _look(follower: Follower, written: set[str]) -> bool:
    return follower.look(follower.file.name in written)


def _request(hub: Hub, manifest: Manifest, shelf: Shelf, files: Sequence[File]) -> dict[str, Any]:
    """Return what the program is asked for."""
    return {
        "action": "fetch",
        "model": manifest.model,
        "revision": manifest.revision,
        "directory": shelf.partial,
        "files": [one.name for one in files],
        "bytes": {one.name: one.bytes for one in files},
        "digests": {one.name: one.sha256 or one.git for one in files},
        "etags": {one.name: one.etag for one in files},
        "workers": hub.workers,
        "stall_seconds": hub.stall_seconds,
        "ends_with_input": True,
    }
