"""Import what each module imports, then fork a process for each that is to run."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import socket
import sys
import types
from collections.abc import Iterator
from contextlib import suppress

IMPORTED = (
    "ansible.module_utils.basic",
    "ansible.module_utils._internal._ansiballz._loader",
    "ansible.module_utils._internal._json._profiles._module_legacy_c2m",
    "ansible.module_utils._internal._json._profiles._module_legacy_m2c",
    "ansible.module_utils._internal._json._profiles._tagless",
    "concurrent.futures.thread",
    "http.client",
    "runpy",
    "ssl",
    "urllib.request",
    "uuid",
    "zipfile",
)


class Also(list[str]):
    """Where a package's modules lie: in the archive of the module that runs, then in Ansible."""

    def __init__(self, package: types.ModuleType) -> None:
        super().__init__(package.__path__)
        self.place = package.__name__.replace(".", "/")

    def __iter__(self) -> Iterator[str]:
        archives = [path for path in sys.path[:2] if path.endswith(".zip")]
        return iter([*(f"{one}/{self.place}" for one in archives), *super().__iter__()])


def next_job(listening: socket.socket) -> tuple[str, dict[str, str], int]:
    """Return in a process of its own what it is to run; the server itself does not come back."""
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj == 0:
                os._exit(0)  # whoever started it has gone
            if key.data:
                client, pid, pidfd = key.data
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(pidfd)
                os.close(pidfd)
                with client, suppress(OSError):  # it may have been killed
                    client.sendall(str(status if status >= 0 else 128 - status).encode())
                continue
            client, _ = listening.accept()
            length, files, _, _ = socket.recv_fds(client, 8, 3)
            pid = os.fork()
            if pid == 0:
                waiting.close()
                listening.close()
                with client, client.makefile("rb") as reader:
                    directory, environment, mask = json.loads(
                        reader.read(int.from_bytes(length, "big"))
                    )
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                return directory, environment, mask
            for file in files:
                os.close(file)
            pidfd = os.pidfd_open(pid)
            waiting.register(pidfd, selectors.EVENT_READ, (client, pid, pidfd))


def become(directory: str, environment: dict[str, str], mask: int) -> None:
    """Take what the process was given."""
    os.setsid()
    os.chdir(directory)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = [""], ""
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stderr__ = sys.stderr


def main() -> None:
    """Import, then serve."""
    for name in IMPORTED:
        with suppress(ImportError):  # releases of ansible-core differ in what they have inside
            importlib.import_module(name)
    assert "ansible._internal" not in sys.modules, "Ansible's controller is not on hosts"
    for name in ("ansible", "ansible.module_utils"):
        sys.modules[name].__path__ = Also(sys.modules[name])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(128)
        os.write(1, b"ready\n")
        job = next_job(listening)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(*job)
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), sys.modules["__main__"].__dict__)  # noqa: S102


main()
