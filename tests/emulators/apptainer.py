"""Stands in for Apptainer, which Debian 12 does not have: runs a program in an image's root.

After its own documentation (`apptainer exec`, environment, bind mounts) and what its source says of
signals: the program is its child, gets every signal that it gets, and ends with it. It is that of a
strict site, whose configuration mounts neither /tmp nor homes: what is not bound is not there. An
image is a sandbox directory, or a file with the head of SIF and a tar archive after it; both are
small, since they are copied. What a real one mounts with loop devices or FUSE is not emulated.

    apptainer exec [--nv] [--rocm] [--bind SOURCE[:DESTINATION],...] IMAGE PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NoReturn

LIBRARY = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, NEW_USERS = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, BIND, PRIVATE, RECURSIVE = 1, 32, 4096, 1 << 18, 16384
PARENT_DIED = 1
# In which a file of the head of SIF and an archive begin.
MAGIC_AT, MAGIC, ARCHIVE_AT = 32, b"SIF_MAGIC", 65536
FLAGS = ("--nv", "--rocm")
KEPT_OUT = ("HOME", "PATH", "LD_LIBRARY_PATH")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As the image's own runscripts do: what the image sets comes after what the host has.
BEGIN = 'for one in /.singularity.d/env/*.sh; do [ ! -f "$one" ] || . "$one"; done; exec "$@"'


def fatal(words: str, status: int = 255) -> NoReturn:
    """End as the real one does."""
    print(f"FATAL:   {words}", file=sys.stderr)
    raise SystemExit(status)


def parsed(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return flags, binds, and the image with its command."""
    if words[:1] != ["exec"]:
        fatal(f'unknown command "{" ".join(words[:1])}" for "apptainer"', 1)
    words, flags, binds = words[1:], [], []
    while words and words[0].startswith("-"):
        option, _, value = words.pop(0).partition("=")
        if option in ("-B", "--bind"):
            binds += (value or words.pop(0)).split(",")
        elif option in FLAGS:
            flags.append(option)
        else:
            fatal(f'Error for command "exec": unknown flag: {option}', 1)
    if len(words) < 2:
        fatal('Error for command "exec": requires at least 2 arg(s)', 1)
    return flags, binds, words


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    """Call mount(2)."""
    told = [one and one.encode() for one in (source, target, kind)]
    if LIBRARY.mount(*told, ctypes.c_ulong(flags), None) != 0:
        why = os.strerror(ctypes.get_errno())
        fatal(f"container creation failed: mount {source}->{target} error: {why}")


def fill(image: str, root: str) -> None:
    """Put what the image holds below `root`, and drop the rights to change it."""
    if os.path.isdir(image):
        shutil.copytree(image, root, symlinks=True, dirs_exist_ok=True)
        return
    with open(image, "rb") as file:
        file.seek(MAGIC_AT)
        if file.read(len(MAGIC)) != MAGIC:
            fatal(f"could not open image {image}: image format not recognized")
        file.seek(ARCHIVE_AT)
        with tarfile.open(fileobj=file, mode="r:") as archive:
            # Debian 12's Python has no filters.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(root)  # noqa: S202  the tests' own


def show(bind: str, root: str) -> None:
    """Bind one path of the host, whose place in the image is made."""
    source, _, destination = bind.partition(":")
    if not os.path.exists(source):
        fatal(
            f"container creation failed: mount {source}->{destination or source} error: while "
            f"mounting {source}: mount source {source} doesn't exist"
        )
    target = Path(root + (destination or source))
    if os.path.isdir(source):
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, str(target), None, BIND | RECURSIVE)


def enter(image: str, binds: list[str], root: str) -> None:
    """Leave the root of the host for that of the image, which is then at `root`."""
    user, group = os.geteuid(), os.getegid()
    if LIBRARY.unshare(NEW_MOUNTS | (NEW_USERS if user else 0)) != 0:
        fatal("container creation failed: no namespaces here")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    directory = os.getcwd()
    mount("none", "/", None, PRIVATE | RECURSIVE)
    mount("none", root, "tmpfs", 0)
    fill(image, root)
    for own in ("/dev", "/proc", "/sys"):
        show(own, root)
    for bind in binds:
        show(bind, root)
    mount("none", root, None, REMOUNT | BIND | READ_ONLY)
    os.chroot(root)
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/")


def environment() -> dict[str, str]:
    """Return what the program has of the caller's variables."""
    own = {name: text for name, text in os.environ.items() if name not in KEPT_OUT}
    kept = {name: one for name, one in own.items() if not name.startswith(("APPTAINER", "SINGULA"))}
    home = pwd.getpwuid(os.getuid()).pw_dir
    return {**kept, "HOME": home, "PATH": PATH, "APPTAINER_CONTAINER": "emulated"}


def main(words: list[str]) -> int:
    """Run the program and return its status, as a shell tells it."""
    flags, binds, (image, *command) = parsed(words)
    site = os.environ.get("APPTAINER_BIND", "")
    binds += site.split(",") if site else []
    if not os.path.exists(image):
        fatal(f"could not open image {image}: failed to retrieve path: no such file or directory")
    passed = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    # Until the program is there to get them.
    signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    root, parent = tempfile.mkdtemp(), os.getpid()
    child = os.fork()
    if child == 0:
        LIBRARY.prctl(PARENT_DIED, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(255)
        try:
            variables = {**environment(), "EMULATED_FLAGS": " ".join(flags)}
            enter(image, binds, root)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve("/bin/sh", ["sh", "-c", BEGIN, "sh", *command], variables)  # noqa: S606  the image's own
        except Exception as error:
            print(f"FATAL:   {error}", file=sys.stderr)
        finally:
            os._exit(255)
    while True:
        received = signal.sigwait(passed)
        if received != signal.SIGCHLD:
            os.kill(child, received)
            continue
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            os.rmdir(root)
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
