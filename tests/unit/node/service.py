"""What a broken engine does with everything that is its own, fast, while root works there."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_ansible.node import launcher

NOBODY = 65534
AT_FDCWD, RENAME_EXCHANGE = -100, 2
NO_FOLLOW = {"follow_symlinks": os.chmod not in os.supports_follow_symlinks}


def exchange(one: str, other: str) -> None:
    """Let two names change places in one step, so that there is never none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.renameat2(AT_FDCWD, one.encode(), AT_FDCWD, other.encode(), RENAME_EXCHANGE)


@contextmanager
def acting(act: Callable[[], None]) -> Iterator[None]:
    """Do something as a user without privileges again and again, until the block is left."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            launcher.die_with_parent(parent)
            while True:
                with suppress(OSError):
                    act()
        finally:
            os._exit(1)
    try:
        yield
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the service ended before root did"
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


class Roots:
    """What is root's and must stay so: a closed directory, and a file that nobody else reads."""

    SECRET = "root's-own-words"  # noqa: S105 words to look for, no password

    def __init__(self, place: Path) -> None:
        self.directory = place / "root"
        self.directory.mkdir(mode=0o700)
        self.file = self.directory / "secret"
        self.file.write_text(self.SECRET)
        self.file.chmod(0o600)
        self.see()

    def see(self) -> None:
        """Take what is there now for what must stay."""
        self.before = self._look()

    def _look(self) -> list[tuple[int, int, int, str]]:
        found = []
        for path in (self.directory, *sorted(self.directory.iterdir())):
            status = path.lstat()
            text = path.read_text() if path.is_file() else ""
            found.append((status.st_uid, status.st_gid, status.st_mode, text))
        return found

    def untouched(self) -> bool:
        """Tell whether all is as it was, and nothing came."""
        return self._look() == self.before


def swaps(place: Path, name: str, target: Path) -> Callable[[], None]:
    """Return what lets a directory of the service and a link of it change places for ever."""
    real, link = str(place / name), str(place / f".{name}")

    def act() -> None:
        with suppress(OSError):
            os.mkdir(real)
        with suppress(OSError):
            os.symlink(target, link)
        for _ in range(50):
            for path in (real, link):
                if not os.path.islink(path):
                    with suppress(OSError):
                        os.chmod(path, 0o700)  # so that there is always something to set right
            exchange(real, link)
        with suppress(OSError):
            os.rmdir(real if not os.path.islink(real) else link)

    return act


def everything(places: list[Path], names: list[str], target: Roots) -> Callable[[], None]:
    """Return one thing of all that a user can do in its own directories, by chance."""
    chance = random.Random(os.urandom(8))  # noqa: S311 no secret
    ends = [target.directory, target.file, Path("/etc/shadow"), Path("/"), Path("..")]

    def somewhere() -> str:
        parts = [str(chance.choice(places)), *chance.sample(names, chance.choice((1, 1, 2)))]
        return os.path.join(*parts)

    def act() -> None:
        path, other = somewhere(), somewhere()
        chance.choice(
            (
                lambda: os.symlink(chance.choice([*ends, *places]), path),
                lambda: os.link(target.file, path, follow_symlinks=False),
                lambda: os.mkfifo(path),
                lambda: os.mkdir(path, 0o700),
                lambda: os.mkdir(path, 0o777),
                lambda: Path(path).write_text("words\n"),
                lambda: os.rename(path, other),
                lambda: exchange(path, other),
                lambda: exchange(path, other),
                lambda: os.unlink(path),
                lambda: shutil.rmtree(path),
                lambda: os.chmod(path, chance.choice((0o000, 0o700, 0o750, 0o777)), **NO_FOLLOW),
            )
        )()

    return act
