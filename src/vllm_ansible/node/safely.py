"""Touch as root what a service may change, without being led elsewhere.

Root goes from directory to directory by descriptors. A link is followed only where nobody but root
can have put it; what lies behind a directory of the service is taken for what it is, by its own
descriptor, and nothing of root's is given away there. Without root, links are followed as by any
program: there is nothing to gain.
"""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple, Optional

from . import forked

STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MOST_LINKS = 40
NOBODY = 65534
# A file system that hangs holds whoever reads there.
SECONDS = 20.0
# The longest that a tree is removed: a million files of a slow NFS server, at 3 ms each, are gone
# by then.
REMOVAL_SECONDS = 3600.0
# What says that an entry was changed since it was looked at.
CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOTEMPTY)


class UnsafeError(OSError):
    """A path leads through what somebody else can change."""


class User(NamedTuple):
    """A user by numbers."""

    uid: int
    gids: tuple[int, ...]

    @classmethod
    def of(cls, entry: pwd.struct_passwd) -> User:
        """Return a user with all groups that this host gives."""
        return cls(entry.pw_uid, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)))

    def may_replace_in(self, directory: os.stat_result) -> bool:
        """Tell whether this user can put something else in the place of what is root's there."""
        if self.uid in (0, os.geteuid()):
            return False
        mode = directory.st_mode
        written = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and directory.st_gid in self.gids)
        return directory.st_uid == self.uid or bool(written and not mode & stat.S_ISVTX)


def guarded(directory: os.stat_result) -> bool:
    """Tell whether nobody but root can replace what is root's in a directory."""
    mode = directory.st_mode
    others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and directory.st_gid != 0)
    return directory.st_uid == 0 and not (others and not mode & stat.S_ISVTX)


class Directory:
    """An open directory, and the first one on the way to it that others can change."""

    def __init__(self) -> None:
        """Begin at the root of the file system."""
        self.descriptor = os.open("/", STEP)
        self.path = "/"
        self.exposed: Optional[os.stat_result] = None
        self._see()

    def status(self) -> os.stat_result:
        """Return what the directory is."""
        return os.fstat(self.descriptor)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)

    def enter(self, name: str) -> None:
        """Go into a directory here; a link or a file is NotADirectoryError."""
        try:
            below = os.open(name, STEP, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                error.errno = errno.ENOTDIR
            # The whole path: a name alone would not say where.
            raise OSError(error.errno, os.strerror(error.errno or 0), self.at(name)) from None
        os.close(self.descriptor)
        self.descriptor, self.path = below, self.at(name)
        self._see()

    def at(self, name: str) -> str:
        """Return the path of a name here."""
        return os.path.join(self.path, name)

    def look(self, name: str) -> os.stat_result:
        """Return what has a name here; a link is looked at itself."""
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def link(self, name: str) -> Optional[str]:
        """Return where a link leads, None where there is none; refuse one that others can make."""
        found = self.look(name)
        if not stat.S_ISLNK(found.st_mode):
            return None
        if os.geteuid() == 0 and (found.st_uid != 0 or not guarded(self.status())):
            raise UnsafeError(
                f"{self.at(name)} is a link that users other than root can make or replace: "
                "root does not follow it"
            )
        return os.readlink(name, dir_fd=self.descriptor)

    def _see(self) -> None:
        status = self.status()
        if self.exposed is None and not guarded(status):
            self.exposed = status

    def readable(self) -> int:
        """Return a descriptor of it that can be listed and changed, to be closed by the caller."""
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)


@contextmanager
def walked(path: str, make: bool = False, against: Optional[User] = None) -> Iterator[Directory]:
    """Go to a directory, which is made where it is missing if so asked.

    against: a user who must not be able to change what lies on the way. Raises OSError.
    """
    directory = Directory()
    with closing(directory):
        left, links = _parts(os.path.abspath(path)), 0
        while left:
            _refuse(directory, against)
            name = left.pop()
            try:
                directory.enter(name)
                continue
            except FileNotFoundError:
                if not make:
                    raise
            except NotADirectoryError:
                target = directory.link(name)
                links += 1
                if target is None or links > MOST_LINKS:
                    raise
                left += _parts(target)
                if target.startswith("/"):
                    directory.enter("/")
                continue
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=directory.descriptor)
            directory.enter(name)
        _refuse(directory, against)
        yield directory


def named(uid: int) -> str:
    """Return the name of a user, or the number of one that this host does not know."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _parts(path: str) -> list[str]:
    """Return the names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _refuse(directory: Directory, against: Optional[User]) -> None:
    if against and against.may_replace_in(directory.status()):
        raise UnsafeError(
            f"{directory.path} can be changed by {named(against.uid)}, who could put another "
            "directory in the place of what root keeps there"
        )


def keep_directory(
    path: str, uid: int, gid: int, mode: int, service: User, check: bool = False
) -> bool:
    """Make a directory as wanted, or in check mode look; tell whether it was not.

    One that belongs neither to its owner-to-be, to the service, to root nor to the caller is
    refused, and so is one for the caller alone where the service could replace it. Raises OSError.
    """
    ours = os.geteuid()
    against = service if uid == ours and ours == 0 else None
    above, name = os.path.split(os.path.abspath(path))
    try:
        with walked(above, make=not check, against=against) as parent:
            missing = False
            try:
                parent.look(name)
            except FileNotFoundError:
                missing = True
                if check:
                    return True
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=parent.descriptor)
            exposed, place = parent.exposed is not None, parent.path
            try:
                parent.enter(name)
            except NotADirectoryError:
                raise UnsafeError(f"{path} is not a directory") from None
            found = parent.status()
            if found.st_uid not in (uid, service.uid, 0, ours):
                raise UnsafeError(f"{path} belongs to {named(found.st_uid)}, not to {named(uid)}")
            if not missing and (found.st_uid, stat.S_IMODE(found.st_mode)) == (uid, mode):
                return False
            if check:
                return True
            with closing_descriptor(parent.readable()) as opened:
                # The service can bring what is root's here only if root had put it near: what was
                # left half made is empty.
                if ours == 0 == found.st_uid and exposed and os.listdir(opened):
                    raise UnsafeError(
                        f"{path} belongs to root and is not empty, and others can change {place}: "
                        "it is not given away"
                    )
                os.fchown(opened, uid, gid)
                os.fchmod(opened, mode)
            return True
    except FileNotFoundError:
        if check:
            return True
        raise


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: str) -> int:
    """Return a descriptor of a regular file for reading; raise OSError for anything else.

    Nothing is waited for, as a FIFO would have it, and what is root's is not read where others can
    have put it.
    """
    above, name = os.path.split(os.path.abspath(path))
    with walked(above) as directory:
        return open_in(directory, name)


def open_in(directory: Directory, name: str) -> int:
    """Return a descriptor of a regular file of a directory, as open_file does."""
    opened = os.open(name, os.O_RDONLY | FILE, dir_fd=directory.descriptor)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafeError(f"{directory.at(name)} is not a regular file")
        others = found.st_uid != directory.status().st_uid
        if os.geteuid() == 0 and directory.exposed and others and found.st_nlink > 1:
            raise UnsafeError(f"{directory.at(name)} is a hard link to a file of another user")
    except OSError:
        os.close(opened)
        raise
    return opened


def replace_in(
    directory: Directory, name: str, content: bytes, uid: int, gid: int, mode: int = 0o600
) -> None:
    """Put a file, which only one user can read unless mode says else, there in one step."""
    temporary = f".{name}-{secrets.token_hex(8)}"
    place = directory.descriptor
    # Made 0600 before the first byte is in it, and given away by its descriptor.
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=place)
    try:
        with os.fdopen(made, "wb") as file:
            os.fchmod(made, 0o600)  # whatever the umask is
            file.write(content)
            file.flush()
            os.fsync(made)
            os.fchown(made, uid, gid)
            os.fchmod(made, mode)
        os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place)
        raise


def remove_tree(path: str) -> None:
    """Remove a directory and all below it, however deep, while others may change it.

    Nothing is opened but directories, and those by descriptors of what they are in: a link is
    removed itself, and a FIFO in the place of a directory is waited for by nobody. What lies deeper
    is brought up first, so that no depth takes descriptors or calls. Raises OSError.
    """
    above, name = os.path.split(os.path.abspath(path))
    with walked(above) as parent, closing_descriptor(parent.readable()) as place:
        top = _open_below(place, name)
        try:
            _clear(top, path)
        finally:
            os.close(top)
        os.rmdir(name, dir_fd=place)


def _open_below(place: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=place)


def _clear(top: int, path: str) -> None:
    """Remove all in a directory; whoever fills it faster is left to it after a while."""
    end = time.monotonic() + REMOVAL_SECONDS
    while names := os.listdir(top):
        for name in names:
            if time.monotonic() > end:
                slow = f"not empty after {REMOVAL_SECONDS:.0f} s: it is slow, or a process fills it"
                raise OSError(errno.EBUSY, slow, path)
            try:
                _remove_in(top, name, path)
            except OSError as error:
                # By now it is gone, or something else, or not empty any more.
                if error.errno not in CHANGED:
                    raise OSError(error.errno, os.strerror(error.errno or 0), path) from None


def _remove_in(top: int, name: str, path: str) -> None:
    """Remove one entry of a directory, after its directories have been brought up there."""
    if not _is_directory(top, name):
        os.unlink(name, dir_fd=top)
        return
    with closing_descriptor(_open_below(top, name)) as below:
        for entry in os.listdir(below):
            if not _is_directory(below, entry):
                os.unlink(entry, dir_fd=below)
                continue
            try:
                up = f".removed-{secrets.token_hex(8)}"
                os.rename(entry, up, src_dir_fd=below, dst_dir_fd=top)
            except OSError:
                # On another file system, or of a mode that forbids to move it.
                with closing_descriptor(_open_below(below, entry)) as deeper:
                    _clear(deeper, path)
                os.rmdir(entry, dir_fd=below)
    os.rmdir(name, dir_fd=top)


def _is_directory(place: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)


def as_holder(path: str, work: Callable[[forked.Tell], None]) -> dict[str, Any]:
    """Return what work tells, done as the first user on the way to a path who could change it.

    So what root may read and that user may not stays unread, whatever lies there. `error` says
    what went wrong; nothing is told where there is no such directory.
    """
    try:
        with walked(path) as directory:
            holder = directory.exposed
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"error": str(error)}

    def drop(tell: forked.Tell) -> None:
        if os.geteuid() == 0 and holder is not None:
            become(holder.st_uid or NOBODY, [holder.st_gid or NOBODY])
        work(tell)

    return forked.run_each([drop], SECONDS, Exception)[0]


def become(uid: int, gids: Iterable[int]) -> None:
    """Be another user for good, by numbers."""
    first, *others = gids
    os.setgroups(others)
    os.setgid(first)
    os.setuid(uid)
