"""Real servers, real users and real plays for unit tests."""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tty  # noqa: F401 before a process of nobody, who may not read this Python, needs it
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

# It makes a directory of the user who imports it first, which must not be nobody's process.
import ansible.constants  # noqa: F401 for what its import does
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from tests import killed, warm

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@dataclass
class Request:
    """What a client asked."""

    path: str
    key: str
    body: dict[str, Any] = field(default_factory=dict)


# Status and body of an answer; a body that is no text is sent as JSON.
Answer = Callable[[Request], tuple[int, Any]]


@dataclass
class Served:
    """A server, and what was asked of it."""

    url: str
    port: int
    requests: list[Request]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Served]]:
    """Start real HTTP servers on loopback; answers of None end the connection half way."""
    # Nobody listens there: a client that asks the proxy of its environment fails.
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as servers:

        def start(answer: Answer) -> Served:
            asked: list[Request] = []

            class Handler(BaseHTTPRequestHandler):
                def handle_any(self) -> None:
                    length = int(self.headers.get("Content-Length") or 0)
                    body = json.loads(self.rfile.read(length)) if length else {}
                    request = Request(self.path, self.headers.get("Authorization", ""), body)
                    asked.append(request)
                    status, content = answer(request)
                    text = content if isinstance(content, str) else json.dumps(content)
                    data = b"" if content is None else text.encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data) or 100))
                    self.end_headers()
                    with suppress(OSError):  # a client may have given up
                        self.wfile.write(data)

                do_GET = do_POST = handle_any

                def log_message(self, *_: Any) -> None:
                    """Leave the console to pytest."""

            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            servers.callback(server.server_close)
            servers.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            port = server.server_address[1]
            return Served(f"http://127.0.0.1:{port}", port, asked)

        yield start


def fork(call: Callable[[], Any], user: int | None) -> Any:
    """Return what a function returns in a process of its own, as another user if asked."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            answer = {"value": call()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = json.load(pipe)
    os.waitpid(child, 0)
    assert "error" not in answer, answer["error"]
    return answer["value"]


@pytest.fixture
def as_nobody() -> Callable[[Callable[[], Any]], Any]:
    """Call a function as a user without privileges: nobody where tests run as root."""
    return lambda call: fork(call, NOBODY if os.geteuid() == 0 else None)


def called(name: str, args: dict[str, Any], check: bool = False) -> Callable[[], dict[str, Any]]:
    """Return the call of a module, for a process of its own; a module that breaks breaks it."""
    module = import_module(name)

    def call() -> dict[str, Any]:
        printed = io.StringIO()
        with (
            patch_module_args({**args, "_ansible_check_mode": check}),
            redirect_stdout(printed),
            suppress(SystemExit),
        ):
            module.main()
        result: dict[str, Any] = json.loads(printed.getvalue())
        return result

    return call


@pytest.fixture
def module_as_nobody(as_nobody: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Run a module as a user without privileges."""

    def run(name: str, args: dict[str, Any], check: bool = False) -> dict[str, Any]:
        result: dict[str, Any] = as_nobody(called(name, args, check))
        return result

    return run


@pytest.fixture
def nobodys(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that the user without privileges owns and can reach."""
    if os.geteuid() != 0:
        yield tmp_path
        return
    # The directories above tmp_path are closed to others.
    with tempfile.TemporaryDirectory(prefix="vllm-nobody-") as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@dataclass
class Played:
    """What a play printed, and the results of its tasks by name and host."""

    printed: str
    tasks: dict[str, dict[str, dict[str, Any]]]

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the only result of a task."""
        (result,) = self.tasks[name].values()
        return result


@cache
def own_directory(prefix: str) -> Path:
    """Return a directory of this process, which is removed at its end."""
    made = Path(tempfile.mkdtemp(prefix=prefix))
    killed.remember(directory=str(made))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def one_path(directory: Path) -> Path:
    """Return a path that is the same for the directories of all tests, and leads to this one."""
    here = own_directory("plugins-") / "here"
    here.unlink(missing_ok=True)
    here.symlink_to(directory)
    return here


@cache
def settings() -> Path:
    """Return a directory with an empty ansible.cfg and, of the repository's callbacks, preload.

    The others would record a play as a run.
    """
    made = own_directory("settings-")
    (made / "ansible.cfg").touch()
    (made / "preload.py").symlink_to(ROOT / "callback_plugins/preload.py")
    return made


class Playbook:
    """Tasks for the real ansible-playbook; a task that fails does not end the play."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def start(
        self,
        tasks: list[dict[str, Any]],
        hosts: dict[str, dict[str, Any]] | None = None,
        environment: dict[str, str] | None = None,
        flags: tuple[str, ...] = (),
        callback: str = "ansible.posix.json",
        own_session: bool = False,
        whole: bool = False,
    ) -> subprocess.Popen[str]:
        """Start to play on hosts that are all this machine.

        whole: it is not killed.
        """
        # A play that is killed takes its modules with it only where they are its own.
        python = sys.executable if own_session else warm.python()
        local = {"ansible_connection": "local", "ansible_python_interpreter": python}
        inventory = {"gpu": {"hosts": hosts or {"here": {}}, "vars": local}}
        blocks = [{"block": [task], "rescue": [{"meta": "noop"}]} for task in tasks]
        page = [{"hosts": "gpu", "gather_facts": False, "tasks": blocks}]
        (self.directory / "inventory.yml").write_text(yaml.safe_dump(inventory))
        (self.directory / "play.yml").write_text(yaml.safe_dump(page, sort_keys=False))
        # As ansible.cfg does: else each task's worker loads all filters for itself. Where nothing
        # is written as a template, none of them needs any.
        filters = any(word in json.dumps([tasks, hosts]) for word in ("{{", "include_", "import_"))
        variables = {
            **{name: value for name, value in os.environ.items() if "ANSIBLE" not in name},
            "ANSIBLE_CONFIG": str(settings() / "ansible.cfg"),
            "ANSIBLE_LIBRARY": str(ROOT / "library"),
            "ANSIBLE_ACTION_PLUGINS": str(ROOT / "action_plugins"),
            "ANSIBLE_FILTER_PLUGINS": str(ROOT / "filter_plugins"),
            "ANSIBLE_MODULE_UTILS": str(ROOT / "src"),
            "ANSIBLE_STDOUT_CALLBACK": callback,
            "ANSIBLE_CALLBACK_PLUGINS": str(settings()),
            **({"ANSIBLE_CALLBACKS_ENABLED": "preload"} if filters else {}),
            "ANSIBLE_PIPELINING": "true",
            # To load every kind of inventory takes longer than to read this one.
            "ANSIBLE_INVENTORY_ENABLED": "yaml",
            **(environment or {}),
        }
        program = warm.PLAYBOOK
        if whole:
            variables = self._alike(variables)
            program = warm.playbook(variables, self.directory)
        return subprocess.Popen(
            [program, "-i", "inventory.yml", *flags, "play.yml"],
            cwd=self.directory,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_session,
        )

    def _alike(self, variables: dict[str, str]) -> dict[str, str]:
        """Name plugins of this directory as one warm program has read it."""
        here = one_path(self.directory)
        return {
            name: value.replace(str(self.directory), str(here))
            if name.startswith("ANSIBLE_")
            else value
            for name, value in variables.items()
        }

    def __call__(self, *arguments: Any, **options: Any) -> Played:
        """Play to the end and return what came of it."""
        with self.start(*arguments, whole=True, **options) as process:
            output, errors = process.communicate()
        # What the workers print comes before the results.
        printed, brace, text = output.partition("{\n")
        assert brace, output + errors
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for one in json.loads(brace + text)["plays"]:
            for task in one["tasks"]:
                if task["hosts"]:
                    found.setdefault(task["task"]["name"], {}).update(task["hosts"])
        return Played(printed, found)


@pytest.fixture
def play(tmp_path: Path) -> Playbook:
    """Play tasks with the real ansible-playbook."""
    return Playbook(tmp_path)


@pytest.fixture(scope="module")
def shared_play(tmp_path_factory: pytest.TempPathFactory) -> Playbook:
    """Play once what all tests of a file look at: to start a play costs more than its tasks."""
    return Playbook(tmp_path_factory.mktemp("play"))
