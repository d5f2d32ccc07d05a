"""What an engine's user does on its host with all that it owns, while root works there.

Runs on the host by itself, with the standard library of Python 3.9, as root until the user exists:

    python3 intruder.py USER SECRET_DIRECTORY PEACE

It races in everything that the user may write to: directories, links, FIFOs, sockets, files and
programs change places. While the file PEACE exists, each exchange is undone at once, so that a run
continues to its end; else all is left as it comes. A program that root ran leaves the file `ran` in
SECRET_DIRECTORY, where root alone can write.
"""

import ctypes
import os
import pwd
import random
import shutil
import socket
import sys
import time

AT_FDCWD, RENAME_EXCHANGE = -100, 2
MOST_DIRECTORIES = 400
# What root looks for there by name, beside what is there.
NAMES = ["cache", "config", "key.yaml", "benchmark.json", "admin.sock", "master.sock", "log"]
NAMES += ["session_latest", "raylet.err", "torch_compile_cache", "triton", "vllm", "tmp", "0"]
NAMES += ["python3", "ray", "sitecustomize.py", "json.py"]
NO_FOLLOW = {"follow_symlinks": os.chmod not in os.supports_follow_symlinks}
MODES = (0, 0o700, 0o777, 0o6777)
CHANCE = random.Random()  # noqa: S311 no secret
LIBC = ctypes.CDLL(None)
KEPT = []


def become(name):
    """Wait for the user, and be it."""
    while True:
        try:
            user = pwd.getpwnam(name)
            break
        except KeyError:
            time.sleep(0.05)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def owned(tops):
    """Return directories that this user may write to."""
    found = []
    for top in tops:
        for place, folders, _ in os.walk(top):
            if os.access(place, os.W_OK | os.X_OK):
                found.append(place)
            folders[:] = [one for one in folders if not os.path.islink(os.path.join(place, one))]
            if len(found) >= MOST_DIRECTORIES:
                return found
    return found


def exchange(one, other):
    """Let two names change places in one step."""
    LIBC.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


def listen(path):
    """Listen at a path, and never answer."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen()
    KEPT.append(made)
    del KEPT[:-50]


def program(path, ends):
    """Leave something to run, for a shell and for Python."""
    ran = os.path.join(ends[0], "ran")
    with open(path, "w") as made:
        if path.endswith(".py"):
            made.write(f"import os\nif os.getuid() == 0:\n    open({ran!r}, 'a').close()\n")
        else:
            made.write(f'#!/bin/sh\n[ "$(id -u)" != 0 ] || : > {ran}\n')
    os.chmod(path, 0o755)  # noqa: S103 so that root could run it


def undone(path, ends):
    """Put something else in a place for a moment."""
    aside = os.path.join(os.path.dirname(path), f".aside{os.getpid()}")
    kind = CHANCE.choice(["link", "fifo", "directory", "program"])
    if kind == "link":
        os.symlink(CHANCE.choice(ends), aside)
    elif kind == "fifo":
        os.mkfifo(aside)
    elif kind == "program":
        program(aside, ends)
    else:
        os.mkdir(aside)
    exchange(path, aside)
    exchange(path, aside)
    (os.rmdir if kind == "directory" else os.unlink)(aside)


def anything(path, other, ends):
    """Do one thing of all that a user can do in its own directories."""
    ways = (
        lambda: os.symlink(CHANCE.choice(ends), other),
        lambda: os.link(ends[1], other, follow_symlinks=False),
        lambda: os.mkfifo(other),
        lambda: os.mkdir(other, 0o777),
        lambda: listen(other),
        lambda: program(other, ends),
        lambda: os.rename(path, other),
        lambda: exchange(path, other),
        lambda: exchange(path, other),
        lambda: os.unlink(path),
        lambda: shutil.rmtree(path),
        lambda: os.chmod(path, CHANCE.choice(MODES), **NO_FOLLOW),
    )
    CHANCE.choice(ways)()


def main():
    """Race until it is killed; say how often something was tried."""
    name, secret, peace = sys.argv[1:]
    become(name)
    cluster = name.partition("-")[2]
    tops = [f"/opt/vllm-ansible/{cluster}", f"/run/{name}", "/dev/shm", "/var/tmp"]  # noqa: S108
    ends = [secret, os.path.join(secret, "words"), "/etc/shadow", "/etc", "/root", "/", ".."]
    tried, places, seen = 0, [], 0.0
    while True:
        if time.monotonic() - seen > 2 or not places:
            places, seen = owned(tops), time.monotonic()
        if not places:
            time.sleep(0.05)
            continue
        place, elsewhere = CHANCE.choice(places), CHANCE.choice(places)
        try:
            path = os.path.join(place, CHANCE.choice(os.listdir(place) + NAMES))
            other = os.path.join(CHANCE.choice([place, elsewhere]), CHANCE.choice(NAMES))
            if os.path.exists(peace):
                undone(path, ends)
            else:
                anything(path, other, ends)
        except OSError:
            pass
        tried += 1
        time.sleep(0.001)
        if tried % 500 == 0:
            sys.stdout.write(f"{tried}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
