"""Start one process of Dynamo with the password that all of one engine share.

The password is made here, once, and leaves neither this host nor its file and the environments of
these processes. etcd gets it before it listens at an address. Standard library only, Python 3.9.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

FILE, TOKENS = "password", "token.key"
# Relative: the path of a socket is short, and etcd wants a port behind it.
CLIENT, PEER = "client:0", "peer:0"
DATA = "etcd"
LONGEST_SECONDS = 60.0
NAMES = ("ETCD_AUTH_PASSWORD", "NATS_AUTH_PASSWORD")


def secret(path: str) -> str:
    """Return what a file holds, made by whoever comes first."""
    made = f"{path}.{os.getpid()}"
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        # It has its name whole or not at all, and nobody's is replaced.
        os.link(made, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(made)
    with open(path, encoding="utf-8") as file:
        return file.read()


def etcd_words(program: str, client_url: str) -> list[str]:
    """Return the command of an etcd of one member, which others reach at one address alone."""
    peer = f"unix://{PEER}"
    return [
        program,
        "--name=dynamo",
        f"--data-dir={DATA}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=dynamo={peer}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        # None of etcd's own tokens outlives a restart, or five minutes without use, and Dynamo asks
        # for one when it starts alone: a sidecar that waited for its engine could not register.
        f"--auth-token=jwt,priv-key={TOKENS},sign-method=HS256,ttl=87600h",
        "--auto-compaction-retention=1",
        "--logger=zap",
        "--log-level=warn",
    ]


class _Connection(http.client.HTTPConnection):
    """A connection to the socket that etcd has before it has an address."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(CLIENT)


def call(what: str, **values: str) -> None:
    """Ask etcd for one change; what is so already is no error."""
    connection = _Connection("etcd", timeout=10)
    try:
        connection.request("POST", f"/v3/auth/{what}", json.dumps(values))
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace")
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK and "already exists" not in said:
        raise OSError(f"etcd refuses {what}: {said}")


def guard(program: str, word: str) -> None:
    """Give etcd its password while it can be reached by this user's own socket alone."""
    # Left by a start that was cut off: it may have a password, or half of one.
    shutil.rmtree(DATA, ignore_errors=True)
    for path in (CLIENT, PEER):
        if os.path.lexists(path):
            os.unlink(path)
    child = subprocess.Popen(etcd_words(program, f"unix://{CLIENT}"))  # noqa: S603 - named by the role
    try:
        end = time.monotonic() + LONGEST_SECONDS
        while True:
            try:
                call("user/add", name="root", password=word)
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.1)
        call("role/add", name="root")
        call("user/grant", user="root", role="root")
        call("enable")
    finally:
        child.terminate()
        child.wait()


def own_directory(argv: Sequence[str]) -> str:
    """Return an empty directory for the temporary files of a process with this command line.

    Dynamo 1.6 writes its logging configuration to a file at each start, and leaves it there.
    """
    name = hashlib.sha256("\0".join(argv).encode()).hexdigest()[:12]
    path = os.path.join(os.getcwd(), "tmp", name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def main(directory: str, kind: str, *argv: str) -> None:
    """Become the program; kind is etcd or other, and etcd is given program, address and mark."""
    os.umask(0o077)
    os.chdir(directory)
    word = secret(FILE)
    if kind == "etcd":
        program, url = argv
        secret(TOKENS)
        mark = f"{DATA}.guarded"
        if not (os.path.exists(mark) and os.path.isdir(DATA)):
            guard(program, word)
            with open(mark, "w", encoding="utf-8"):
                pass
        if os.path.lexists(PEER):
            os.unlink(PEER)
        # Without the password: etcd logs variables that it does not know, with their values.
        argv = tuple(etcd_words(program, url))
    else:
        os.environ.update(dict.fromkeys(NAMES, word), TMPDIR=own_directory(argv))
        # NATS reads it as a piece of its configuration, where digits, an e and digits are a number.
        os.environ["DYNAMO_PASSWORD"] = f'"{word}"'
    os.execvp(argv[0], argv)  # noqa: S606 - named by the role


if __name__ == "__main__":
    main(*sys.argv[1:])
