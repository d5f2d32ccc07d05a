"""Share package and model caches with the hosts without copying them.

Hard links do not cross mounts, not even two bind mounts of one file system. So one directory of
this machine holds the cache of uv and the hosts' own trees, and every host mounts it whole.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .commands import run

MOUNT = Path("/srv/lab")
# What uv renames into place once it is complete, in the order in which one needs the other.
BUCKETS = ("archive-v", "sdists-v", "wheels-v", "simple-v")


@dataclass(frozen=True)
class SharedCache:
    """The directory that hosts mount at /srv/lab."""

    root: Path
    pip: Path | None = None

    @property
    def volumes(self) -> list[str]:
        """What podman mounts: the shared tree, and inside it the machine's own cache of pip."""
        return [f"{self.root}:{MOUNT}", *([f"{self.pip}:{MOUNT / 'pip'}"] if self.pip else [])]

    @property
    def environment(self) -> dict[str, str]:
        """What makes installs and downloads on a host use the shared caches."""
        return {
            "HF_HOME": str(MOUNT / "huggingface"),
            "PIP_CACHE_DIR": str(MOUNT / "pip"),
            "UV_CACHE_DIR": str(MOUNT / "uv"),
        }

    def prepare(self) -> None:
        """Make the directories, and fill the caches with what this machine already has."""
        # A lock may have made the root already, for its owner alone.
        for name in ("", "huggingface", "pip", "uv", "hosts"):
            open_directory(self.root / name)
        link_missing(machine_uv_cache(), self.root / "uv")

    def host_directory(self, token: str, host: str) -> Path:
        """Return the tree on this machine that holds one host's cluster directories."""
        return self.root / "hosts" / token / host

    def make_host(self, token: str, host: str) -> Path:
        """Make one host's tree and return its path inside the host."""
        directory = self.host_directory(token, host)
        open_directory(directory.parent)
        open_directory(directory)
        return MOUNT / directory.relative_to(self.root)

    def remove_hosts(self, token: str) -> None:
        """Remove what the hosts of one lab wrote; the caches stay."""
        directory = self.root / "hosts" / token
        if directory.exists():
            shutil.rmtree(directory)


def open_directory(path: Path) -> None:
    """Make a directory that a service's user on a host can pass, whatever our umask is."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def machine_uv_cache() -> Path:
    """Return the directory in which uv on this machine keeps its cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("UV_CACHE_DIR") or Path(base) / "uv")


def machine_pip_cache() -> Path | None:
    """Return the directory in which pip on this machine keeps its cache, if it keeps one."""
    asked = run(["/usr/bin/python3", "-m", "pip", "cache", "dir"], check=False)
    path = Path(asked.stdout.strip()) if asked.returncode == 0 else None
    return path if path and path.is_dir() else None


def link_missing(source: Path, target: Path) -> int:
    """Give the target a hard link to each finished file of a uv cache; return how many were new."""
    if not source.is_dir() or source.stat().st_dev != target.stat().st_dev:
        return 0  # another file system: hosts fill the cache by themselves, once
    linked = 0
    for bucket in BUCKETS:
        for top in sorted(source.glob(f"{bucket}*")):
            linked += link_tree(top, target / top.name)
    return linked


def link_tree(source: Path, target: Path) -> int:
    """Link one tree, skipping what the target already has and uv's half-written files."""
    linked = 0
    target.mkdir(exist_ok=True)
    # Asked once a directory: most is there, and each refused link would cost as much as a new one.
    there = set(os.listdir(target))
    try:
        listed = os.scandir(source)
    except FileNotFoundError:
        # Pruned by uv since its parent was listed.
        return 0
    with listed as entries:
        for entry in entries:
            if entry.name.startswith(".tmp") or entry.name == ".lock":
                continue
            if entry.is_dir(follow_symlinks=False):
                linked += link_tree(Path(entry.path), target / entry.name)
                continue
            if entry.name in there:
                continue
            # There since this moment, by another lab; or just pruned by uv.
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(entry.path, target / entry.name, follow_symlinks=False)
                linked += 1
    return linked
