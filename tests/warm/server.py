"""Import what each module imports, then fork a process for each that is to run.

python server.py SOCKET [ANSIBLE-PLAYBOOK]: with the program, what it imports, and runs it, or
ansible-inventory. The source that modules bring is compiled once, for all that bring the same.
"""

from __future__ import annotations

import _imp
import atexit
import gc
import hashlib
import importlib
import importlib.util
import json
import marshal
import os
import pathlib
import select
import signal
import socket
import sys
import tempfile
import types
import zipimport
from collections.abc import Iterable, Iterator
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


# What plays of any kind import.
CONTROLLER = (
    "ansible.cli.inventory",
    "ansible.cli.playbook",
    "ansible.executor.playbook_executor",
    "ansible.executor.task_queue_manager",
    "ansible.parsing.ajson",
    "ansible.parsing.yaml.dumper",
    "ansible.playbook.handler_task_include",
    "ansible.plugins.cache.memory",
    "ansible.plugins.connection.local",
    "ansible.plugins.inventory.yaml",
    "ansible.plugins.shell.sh",
    "ansible.plugins.strategy.linear",
    "ansible.plugins.vars.host_group_vars",
    "ansible.template",
    "ansible.utils.encrypt",
    "concurrent.futures.thread",
    "multiprocessing.popen_fork",
    "multiprocessing.shared_memory",
    "multiprocessing.synchronize",
    "statistics",
    "tomllib",
    "urllib.request",
)
FILTERS = pathlib.Path(__file__).parents[2].glob("filter_plugins/*.py")
# Plugins that ansible-playbook loads before it plays, or each play does.
PLUGINS = ("become", "callback", "connection", "inventory", "shell", "filter", "test")


class Also(list[str]):
    """Where a package's modules lie: in the archive of the module that runs, then in Ansible."""

    def __init__(self, package: types.ModuleType) -> None:
        super().__init__(package.__path__)
        self.place = package.__name__.replace(".", "/")

    def __iter__(self) -> Iterator[str]:
        archives = [path for path in sys.path[:2] if path.endswith(".zip")]
        return iter([*(f"{one}/{self.place}" for one in archives), *super().__iter__()])


Job = tuple[str, dict[str, str], int, list[str]]


def next_job(listening: socket.socket, with_client: bool) -> Job:
    """Return in a process of its own what it is to run; the server itself does not come back.

    with_client: what runs ends with who asked for it, as with the server.
    """
    waiting = select.poll()
    waiting.register(listening, select.POLLIN)
    waiting.register(0, select.POLLIN)
    processes: dict[int, tuple[socket.socket, int]] = {}
    clients: dict[int, int] = {}
    while True:
        for found, _ in waiting.poll():
            if found == 0:  # whoever started it has gone
                for pid in clients.values():
                    end(pid)
                os._exit(0)
            if found in clients:
                end(clients.pop(found))
                waiting.unregister(found)
                continue
            if found in processes:
                client, pid = processes.pop(found)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                waiting.unregister(found)
                os.close(found)
                if clients.pop(client.fileno(), 0):
                    waiting.unregister(client)
                with client, suppress(OSError):  # it may have been killed
                    client.sendall(str(status if status >= 0 else 128 - status).encode())
                continue
            client, _ = listening.accept()
            length, files, _, _ = socket.recv_fds(client, 8, 3)
            pid = os.fork()
            if pid == 0:
                listening.close()
                with client, client.makefile("rb") as reader:
                    directory, environment, mask, words = json.loads(
                        reader.read(int.from_bytes(length, "big"))
                    )
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                return directory, environment, mask, words
            for file in files:
                os.close(file)
            pidfd = os.pidfd_open(pid)
            processes[pidfd] = client, pid
            waiting.register(pidfd, select.POLLIN)
            if with_client:
                clients[client.fileno()] = pid
                waiting.register(client, 0)  # its end alone


def end(pid: int) -> None:
    """Kill a process and all of its session that has no group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def become(directory: str, environment: dict[str, str], mask: int, words: list[str]) -> None:
    """Take what the process was given."""
    os.setsid()
    os.chdir(directory)
    os.umask(mask)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = words, os.path.dirname(words[0])
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stderr__ = sys.stderr


def imported(names: Iterable[str]) -> None:
    for name in names:
        with suppress(ImportError):  # releases of ansible-core differ in what they have inside
            importlib.import_module(name)


def load_plugins() -> None:
    """Load all plugins of some kinds, as Ansible does."""
    from ansible.plugins import loader

    for kind in PLUGINS:
        with suppress(ImportError):
            list(getattr(loader, f"{kind}_loader").all(class_only=True))


def compile_once(kept: pathlib.Path) -> None:
    """Have Python keep what it has compiled of a source that came in an archive."""
    compiled = zipimport._compile_source  # type: ignore[attr-defined]

    def look(path: str, source: bytes) -> types.CodeType:
        place = kept / hashlib.sha256(source).hexdigest()
        with suppress(OSError):
            found: types.CodeType = marshal.loads(place.read_bytes())  # noqa: S302
            _imp._fix_co_filename(found, path)
            return found
        made: types.CodeType = compiled(path, source)
        with suppress(OSError):  # it may run as another user
            partial = kept / f"{place.name}.{os.getpid()}"
            partial.write_bytes(marshal.dumps(made))
            partial.replace(place)
        return made

    zipimport._compile_source = look  # type: ignore[attr-defined]


def module() -> None:
    """Run what comes on standard input."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), sys.modules["__main__"].__dict__)  # noqa: S102


def program() -> None:
    """Run a program of Ansible, with a directory for temporary files of its own."""
    from ansible import constants
    from ansible.config import manager

    atexit.unregister(manager.cleanup_tmp_file)  # it is the server's
    above = os.path.dirname(constants.DEFAULT_LOCAL_TMP)
    constants.DEFAULT_LOCAL_TMP = tempfile.mkdtemp(prefix=f"ansible-local-{os.getpid()}", dir=above)
    atexit.register(manager.cleanup_tmp_file, constants.DEFAULT_LOCAL_TMP, warn=True)
    name = os.path.basename(sys.argv[0]).removeprefix("ansible-")
    sys.exit(importlib.import_module(f"ansible.cli.{name}").main())


def main() -> None:
    """Import, then serve."""
    if sys.argv[2:]:
        sys.path[0] = os.path.dirname(sys.argv[2])
        imported(CONTROLLER)
        for filters in FILTERS:  # what they import, which Ansible then finds
            spec = importlib.util.spec_from_file_location(filters.stem, filters)
            assert spec and spec.loader
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        load_plugins()
        run = program
    else:
        imported(IMPORTED)
        assert "ansible._internal" not in sys.modules, "Ansible's controller is not on hosts"
        for name in ("ansible", "ansible.module_utils"):
            sys.modules[name].__path__ = Also(sys.modules[name])
        compile_once(pathlib.Path(tempfile.mkdtemp(dir=os.path.dirname(sys.argv[1]))))
        run = module
    os.chdir("/")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(128)
        os.write(1, b"ready\n")
        job = next_job(listening, with_client=run is program)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    become(*job)
    run()


main()
