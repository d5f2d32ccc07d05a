"""The role's own configuration in a real HAProxy, before stand-in engines."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import jinja2
import yaml

from tests.emulators.metered_engine import KEY, MeteredEngine
from tests.ports import free_port
from vllm_ansible.door.clients import Client, map_lines
from vllm_ansible.door.haproxy import by_conversation, threads
from vllm_ansible.door.served import models_text, number_of
from vllm_ansible.node.engine import haproxy_door

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/door"
FIXED = yaml.safe_load((ROLE / "vars/main.yml").read_text())
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
SHOWN = subprocess.run([HAPROXY, "-v"], capture_output=True, text=True) if HAPROXY else None
ALICE = "alice-key-4711"
PEER_KEY = "of-one-door-for-another"
MOST_BODY = 1 << 20


def wait_until(what: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def client(key: str, **limits: Any) -> Client:
    """Return a client with this key."""
    return Client(key_sha256=hashlib.sha256(key.encode()).hexdigest(), **limits)


def make_certificate(directory: Path) -> None:
    """Make tls.crt and tls.key, which sign themselves, in a directory."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=door"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", f"{directory}/tls.key", "-out", f"{directory}/tls.crt"),
        ],
        check=True,
        capture_output=True,
    )


def render(name: str, values: Mapping[str, Any]) -> str:
    """Return one of the role's templates as Ansible renders it."""
    environment = jinja2.Environment(  # noqa: S701 - no page
        trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters["door_by_conversation"] = by_conversation
    environment.filters["hash"] = lambda text, kind: hashlib.new(kind, text.encode()).hexdigest()
    return environment.from_string((ROLE / "templates" / name).read_text()).render(values)


def with_line(place: str, added: str, directory: Path) -> Path:
    """Return a copy of the door's program with a line at the beginning of one function.

    place: the file, a colon, and how the function's first line begins, up to its parameters.
    """
    copy = directory / "program"
    shutil.copytree(ROLE / "files/program", copy)
    name, _, start = place.partition(":")
    lines = (copy / name).read_text().splitlines(keepends=True)
    number = next(at for at, line in enumerate(lines) if line.startswith(f"{start}("))
    lines.insert(number + 1, f"  {added}\n")
    (copy / name).write_text("".join(lines))
    return copy


class Running:
    """Engines behind a door, until the end of a with block."""

    def __init__(
        self,
        directory: Path,
        clients: Mapping[str, Client] | None = None,
        models: tuple[str, ...] = ("m",),
        engines: list[MeteredEngine] | None = None,
        by_priority: tuple[str, ...] = (),
        offered: list[dict[str, Any]] | None = None,
        journals_made: bool = True,
        **settings: Any,
    ) -> None:
        self.by_priority, self.journals_made = by_priority, journals_made
        self.directory, self.settings, self.offered = directory, settings, offered
        self.clients = dict(clients or {"alice": client(ALICE)})
        self.port = free_port()
        # Those of another door are not ended with this one.
        self.given = engines is not None
        self.engines = engines or [MeteredEngine(model) for model in models]
        # Unix sockets have short paths only.
        self.run_dir = Path(tempfile.mkdtemp(prefix="dr"))
        self.journals = directory / "journals"
        self.log = directory / "door.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        assert HAPROXY is not None
        self._stack.callback(shutil.rmtree, self.run_dir, ignore_errors=True)
        self._stack.callback(self.stop)
        try:
            for engine in [] if self.given else self.engines:
                self._stack.enter_context(engine)
            if self.journals_made:
                self.journals.mkdir(exist_ok=True)
            self._certificate()
            self.write()
            self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _certificate(self) -> None:
        make_certificate(self.directory)
        self.context = ssl.create_default_context(cafile=str(self.directory / "tls.crt"))

    def served(self) -> list[dict[str, Any]]:
        """Return what the door is given of its engines, unless it was given that itself."""
        if self.offered is not None:
            return self.offered
        servers: dict[str, list[dict[str, Any]]] = {}
        for number, engine in enumerate(self.engines):
            one = {"name": f"engine{number}", "address": "127.0.0.1", "port": engine.port}
            one["id"] = number_of(f"engine{number}", [])
            servers.setdefault(engine.model, []).append(one)
        return [
            {
                "backend": f"model{number}",
                "model": model,
                "names": [model],
                "servers": own,
                "by_priority": model in self.by_priority,
            }
            for number, (model, own) in enumerate(servers.items())
        ]

    def write(self, digest: str = "first") -> None:
        """Write what HAProxy is told."""
        errors = [[status, jinja2.Template(text).render()] for status, text in FIXED["door_errors"]]
        values = {
            "cluster_name": "test",
            "door_digest": digest,
            "door_threads": threads(SHOWN.stdout if SHOWN else "", 2),
            "door_most_connections": 500,
            "door_silence_seconds": 60,
            "door_body_seconds": 30,
            "door_most_body_bytes": MOST_BODY,
            "door_run_dir": self.run_dir,
            "door_program": ROLE / "files/program",
            "door_dir": self.directory,
            "door_listen": f"127.0.0.1:{self.port}",
            "door_tls": self.directory / "tls",
            "door_models": self.served(),
            "door_errors": errors,
            "door_key_place": self.directory / "api_key",
            "door_journals": self.journals,
            "door_keep_days": 35,
            "door_observer_sha256": "",
            "door_peers": [],
            "door_balance": "least_connections",
            "door_peer_key": PEER_KEY,
            "door_port": self.port,
            **self.settings,
        }
        (self.directory / "peer_key").write_text(f"{PEER_KEY}\n")
        (self.directory / "api_key").write_text(f"{KEY}\n")
        (self.directory / "models").write_text(models_text(self.served()))
        (self.directory / "clients.map").write_text(map_lines(self.clients))
        (self.directory / "door.lua").write_text(render("door.lua.j2", values))
        (self.directory / "haproxy.cfg").write_text(render("haproxy.cfg.j2", values))

    def start(self) -> None:
        assert HAPROXY is not None
        master = f"{self.run_dir}/master.sock,mode,600"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [HAPROXY, "-W", "-S", master, "-f", str(self.directory / "haproxy.cfg")],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **FIXED["door_environment"]},
            )
        wait_until(lambda: self.digest() == "first" and self.ask("GET", "/health")[0] == 200)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End HAProxy, its workers as well."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(120)
            self.process = None

    @property
    def admin(self) -> str:
        return str(self.run_dir / "admin.sock")

    def digest(self) -> str:
        """Return with which settings the worker runs, nothing where none answers."""
        return haproxy_door.digest(self.admin)

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=120, context=self.context
        )

    def send(
        self, method: str, path: str, body: Any = None, key: str = ALICE, **headers: str
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        """Send one request and return its connection and the answer, whose body is not read yet."""
        connection = self.connect()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **headers})
        return connection, connection.getresponse()

    def ask(
        self, method: str, path: str, body: Any = None, key: str = ALICE, **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Return status, text and headers of one request."""
        connection, answer = self.send(method, path, body, key, **headers)
        try:
            text = answer.read().decode()
            return answer.status, text, {name.lower(): one for name, one in answer.getheaders()}
        finally:
            connection.close()

    def chat(self, key: str = ALICE, **body: Any) -> tuple[int, str, dict[str, str]]:
        """Ask for a completion, of the first model unless told otherwise."""
        return self.ask("POST", "/v1/chat/completions", {"model": "m", **body}, key)

    def code(self, key: str = ALICE, **body: Any) -> tuple[int, str]:
        """Return status and code of a refusal; no code of an answer."""
        status, text, _ = self.chat(key, **body)
        return status, json.loads(text)["error"]["code"] if status != 200 else ""

    def entries(self) -> list[dict[str, Any]]:
        """Return the access log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def grown(self, before: tuple[int, int, int]) -> tuple[int, ...]:
        """Return what Alice used since then, once the request is written."""
        wait_until(lambda: self.used("alice")[0] > before[0])
        return tuple(late - early for early, late in zip(before, self.used("alice"), strict=True))

    def used(self, name: str) -> tuple[int, int, int]:
        """Return requests, tokens read and tokens made of a client, as they are kept."""
        rows = [
            line.split()
            for path in self.journals.glob("*.journal")
            for line in path.read_text().splitlines()
        ]
        mine = [[int(one) for one in row[3:6]] for row in rows if row[2] == name]
        requests, read, made = (sum(row[place] for row in mine) for place in range(3))
        return requests, read, made
