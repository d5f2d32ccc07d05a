"""What one environment has compiled, for all that are linked from the same cache of uv.

uv links whatever lies in an unpacked wheel. Bytecode beside a source that has the same time is good
there, too: a lab's hosts and flows on this machine build the environment that `tests/engine` has
built, each for some twenty seconds of compiling.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def share(site_packages: Path, cache: Path) -> int:
    """Link an environment's bytecode to where uv has its sources; return how many were new."""
    # A file of an environment and of the cache are one, under two names.
    archives = {
        _number(metadata): metadata.parents[1]
        for metadata in cache.glob("archive-v*/*/*.dist-info/METADATA")
    }
    linked = 0
    for metadata in site_packages.glob("*.dist-info/METADATA"):
        archive = archives.get(_number(metadata))
        for folder, _, files in os.walk(archive) if archive else ():
            compiled = site_packages / Path(folder).relative_to(archive) / "__pycache__"
            if folder.endswith("__pycache__") or not compiled.is_dir():
                continue
            kept = Path(folder, "__pycache__")
            sources = {name.removesuffix(".py") for name in files if name.endswith(".py")}
            kept.mkdir(exist_ok=True)
            for one in compiled.glob("*.pyc"):
                if one.name.partition(".")[0] not in sources:
                    continue
                with contextlib.suppress(OSError):  # it is there, or links are not possible
                    os.link(one, kept / one.name)
                    linked += 1
    return linked


def _number(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
