"""Load what every task needs once, before Ansible forks a worker for each task."""

from __future__ import annotations

DOCUMENTATION = """
name: preload
type: aggregate
short_description: Load filters and tests before the first task, and keep built modules
description:
  - Ansible forks a worker for every task of every host, and a worker loads the filters and tests
    of all directories when it first looks one up, of which nothing outlives it.
  - What is loaded before is there in every worker. A role that brings filters or tests of its own
    ends that, since Ansible forgets what it has loaded where a directory is added.
  - Ansible packs each module with all that it imports into an archive, once a run. The archives
    are kept for the next run in C(~/.cache/vllm-ansible/modules), as long as no file that could be
    in one differs. They hold source only, no arguments.
"""

import contextlib
import gc
import hashlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

# A run of another checkout, or one that began before a file was changed, may use others meanwhile.
UNUSED_S = 7 * 24 * 3600


class CallbackModule(CallbackBase):
    """Load filters, tests and archives in the process that workers are forked from."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "preload"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._kept: Path | None = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Load them before the first play."""
        for loader in (filter_loader, test_loader):
            list(loader.all())
        # Without what was kept, Ansible builds its archives again.
        with contextlib.suppress(OSError):
            self._kept = kept_place(Path(playbook._basedir))
            if self._kept:
                give(self._kept, built_place())
        gc.collect()

    def v2_playbook_on_play_start(self, play: object) -> None:
        """Keep the garbage collector of workers from what was there before they were forked.

        It would visit all of it, and with that copy the pages in which it lies.
        """
        gc.freeze()

    def v2_playbook_on_stats(self, stats: object) -> None:
        """Keep the archives that this run has built."""
        with contextlib.suppress(OSError):
            # What was changed while the run went on may be in some of them and not in others.
            if self._kept and self._kept == kept_place(None):
                keep(built_place(), self._kept)


def built_place() -> Path:
    """Return where Ansible keeps archives during a run."""
    return Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")


def kept_place(playbooks: Path | None) -> Path | None:
    """Return where archives of just these sources are kept; None where others could be in them."""
    modules = [*map(Path, constants.DEFAULT_MODULE_PATH or [])]
    utilities = [*map(Path, constants.DEFAULT_MODULE_UTILS_PATH or [])]
    # Modules beside a playbook or in a role are found only while that is played.
    beside = [playbooks] if playbooks else []
    beside += [role for path in constants.DEFAULT_ROLES_PATH or [] for role in Path(path).glob("*")]
    for directory in beside:
        for name, known in (("library", modules), ("module_utils", utilities)):
            if (directory / name).is_dir() and directory / name not in known:
                return None
    own = Path(ansible.__file__).parent
    seen = hashlib.sha256(f"{ansible.__version__} {platform.python_version()}".encode())
    for directory in (*modules, *utilities, own / "modules", own / "module_utils"):
        seen.update(f"\n{directory}".encode())
        for line in sources(str(directory)):
            seen.update(line.encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "vllm-ansible", "modules", seen.hexdigest()[:24])


def sources(directory: str) -> Iterator[str]:
    """Yield what changes when a source below a directory does."""
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from sources(entry.path)
            elif not entry.name.endswith(".pyc"):
                # A link that leads nowhere, such as the lock of an editor, is named as it is.
                found = entry.stat(follow_symlinks=os.path.exists(entry.path))
                yield f"\n{entry.path} {found.st_ino} {found.st_mtime_ns} {found.st_size}"


def give(kept: Path, built: Path) -> None:
    """Put what was kept where Ansible looks for what it has built."""
    if not all(is_ours_alone(one) for one in (kept, kept.parent)):
        return
    built.mkdir(mode=0o700, exist_ok=True)
    os.utime(kept)
    for archive in kept.iterdir():
        with contextlib.suppress(OSError):
            os.link(archive, built / archive.name)


def is_ours_alone(directory: Path) -> bool:
    """Return whether nobody else can have written in a directory: what lies there runs on hosts."""
    found = directory.stat() if directory.is_dir() else None
    return bool(found and found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def keep(built: Path, kept: Path) -> None:
    """Keep archives of Ansible's own modules and of those of this project, whole or not at all."""
    if not built.is_dir():
        return
    kept.parent.parent.mkdir(parents=True, exist_ok=True)
    for one in (kept.parent, kept):
        one.mkdir(mode=0o700, exist_ok=True)
    for archive in built.iterdir():
        # Which files one of a collection is made of is not known here.
        ours = archive.name.startswith(("ansible.legacy.", "ansible.modules."))
        if not ours or archive.suffix == ".lock" or archive.name.endswith("-part"):
            continue
        if not (kept / archive.name).exists():
            with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as copy:
                with archive.open("rb") as source:
                    shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
            os.replace(copy.name, kept / archive.name)
    for other in kept.parent.iterdir():
        if time.time() - other.stat().st_mtime > UNUSED_S:
            (shutil.rmtree if other.is_dir() else os.unlink)(other)
