"""The role's own configuration in real programs: HAProxy, the watch, ranks that can be harmed."""

from __future__ import annotations

import csv
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import jinja2

from tests.emulators.data_rank import KEY as RANK_KEY
from tests.ports import free_ports
from vllm_ansible.door.haproxy import by_conversation
from vllm_ansible.node.engine import router

from .client import ask, listens

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles/router"
EMULATOR = ROOT / "tests/emulators/data_rank.py"
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
CLIENT_KEY = "client-key"
# Half a second shorter than the role's own, so that a busy machine does not fail the bound of 5 s.
ANSWER_SECONDS = 2.0


# A look at who answers and the pause after it take less; more is this machine's own delay.
LOOK_SECONDS = 0.1


def wait_until(what: Callable[[], Any], seconds: float = 120) -> float:
    """Wait until something holds; return how long that took, without what this machine delayed."""
    began = last = time.monotonic()
    counted = 0.0
    while not what():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.02)
        now = time.monotonic()
        counted += min(now - last, LOOK_SECONDS)
        last = now
    return counted


class Running:
    """Ranks behind a router, until the end of a with block."""

    def __init__(
        self,
        directory: Path,
        ranks: int = 3,
        step: float = 0.01,
        slots: int = 64,
        lockstep: bool = False,
        pump: bool = False,
        key: str = RANK_KEY,
        quiet_seconds: float = 60,
        by_conversation: bool = False,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.directory = directory
        self.port, self.watch_port, *self.rank_ports = free_ports(2 + ranks)
        self.names = [f"rank-{number}" for number in range(ranks)]
        self._pace = ["--step", str(step), "--slots", str(slots), "--key", key]
        self._lockstep, self._pump, self._key = lockstep, pump, key
        self._quiet_seconds, self._by_conversation = quiet_seconds, by_conversation
        self._answer_seconds = answer_seconds
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Unix sockets have short paths only.
        self.run_dir = Path(f"/tmp/rt{self.port}")  # noqa: S108

    def __enter__(self) -> Self:
        self.run_dir.mkdir(mode=0o700)
        try:
            self._write()
            self.start_ranks()
            self.start_watch()
            self.start_haproxy()
            wait_until(lambda: all(one["agent_status"] == "L7OK" for one in self.rows().values()))
            wait_until(lambda: self.up() == set(self.names))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def _write(self) -> None:
        ranks = [
            {"name": name, "address": "127.0.0.1", "port": port}
            for name, port in zip(self.names, self.rank_ports, strict=True)
        ]
        values = {
            "router_engine": "chat",
            "router_threads": 1,
            "router_most_connections": 2000,
            "router_run_dir": self.run_dir,
            "router_dir": self.directory,
            "router_client_keys_file": "",
            "router_silence_seconds": 60,
            "router_check_path": "/health",
            "router_only_paths": "",
            "router_by_conversation": self._by_conversation,
            "router_check_milliseconds": int(self._answer_seconds * 1000),
            "router_listen": f"127.0.0.1:{self.port}",
            "router_watch_port": self.watch_port,
            "router_ranks": ranks,
        }
        environment = jinja2.Environment(  # noqa: S701 - no page
            trim_blocks=True, keep_trailing_newline=True
        )
        environment.filters["door_by_conversation"] = by_conversation
        shape = environment.from_string((ROLE / "templates/haproxy.cfg.j2").read_text())
        (self.directory / "haproxy.cfg").write_text(shape.render(values))
        (self.directory / "keys.cfg").write_text(f"global\n    setenv ENGINE_KEY '{self._key}'\n")
        (self.directory / "clients.keys").write_text(f"{CLIENT_KEY}\n")
        (self.directory / "api_key").write_text(self._key)
        told = {
            "model": "m",
            "key_file": str(self.directory / "api_key"),
            "ranks": ranks,
            "answer_seconds": self._answer_seconds,
            "silence_seconds": 60,
            "quiet_seconds": self._quiet_seconds,
            "agent_port": self.watch_port,
            "figures_socket": str(self.run_dir / "watch.sock"),
            "stats_socket": str(self.run_dir / "stats.sock"),
            "pump": self._pump,
            "pump_tokens": 8,
        }
        (self.directory / "watch.json").write_text(json.dumps(told))

    def _start(self, name: str, *argv: object) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in argv], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
            )

    def start_ranks(self) -> None:
        if self._lockstep:
            ports = ",".join(map(str, self.rank_ports))
            self._start(
                "ranks", sys.executable, EMULATOR, "--ports", ports, *self._pace, "--lockstep"
            )
        else:
            for name in self.names:
                self.start_rank(name)
        for port in self.rank_ports:
            wait_until(lambda port=port: listens(port))

    def start_rank(self, name: str) -> None:
        port = self.rank_ports[self.names.index(name)]
        self._start(name, sys.executable, EMULATOR, "--ports", port, *self._pace)

    def start_watch(self) -> None:
        program = self.directory / "watch"
        shutil.copytree(ROLE / "files/watch", program, dirs_exist_ok=True)
        shutil.copy(ROOT / "src/vllm_ansible/node/awake.py", program)
        argv = ["-s", "-E", "-B", program / "main.py", self.directory / "watch.json"]
        self._start("watch", sys.executable, *argv)
        wait_until(lambda: listens(self.watch_port))

    def start_haproxy(self) -> None:
        assert HAPROXY is not None
        files = [self.directory / "keys.cfg", self.directory / "haproxy.cfg"]
        self._start("haproxy", HAPROXY, "-db", *[word for file in files for word in ("-f", file)])
        # It listens to clients before its own socket has its name.
        wait_until(lambda: listens(self.port) and (self.run_dir / "admin.sock").exists())

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def admin(self, command: str) -> str:
        return router.ask(str(self.run_dir / "admin.sock"), command)

    def rows(self) -> dict[str, dict[str, str]]:
        """Return what HAProxy says of each rank."""
        lines = self.admin("show stat").lstrip("# ").splitlines()
        rows = [row for row in csv.DictReader(lines) if row["pxname"] == "ranks"]
        return {row["svname"]: row for row in rows if row["svname"] in self.names}

    def up(self) -> set[str]:
        return {name for name, row in self.rows().items() if row["status"].startswith("UP")}

    def told(self, name: str) -> dict[str, Any]:
        """Return what one rank says of the requests that it saw."""
        port = self.rank_ports[self.names.index(name)]
        found: dict[str, Any] = json.loads(ask(port, "GET", "/told")[1])
        return found

    def told_or_none(self, name: str) -> dict[str, Any] | None:
        """Return the same, or nothing as long as the rank does not listen."""
        try:
            return self.told(name)
        except OSError:
            return None

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str, dict[str, str]]:
        """Ask the router with the key."""
        return ask(self.port, method, path, body, CLIENT_KEY)

    def seen(self, *names: str) -> Counter[str]:
        """Return how often ranks saw each request of a client, by its id."""
        told = [one for name in names or self.names for one in self.told(name)["requests"]]
        return Counter(str(one["id"]) for one in told if not one["user"])

    def set(self, name: str, **values: Any) -> None:
        port = self.rank_ports[self.names.index(name)]
        assert ask(port, "POST", "/set", values)[0] == 200

    def figures(self) -> dict[str, float]:
        """Return what the watch has counted, as clients with the key read it."""
        status, text, _ = ask(self.port, "GET", "/metrics/watch", key=CLIENT_KEY)
        assert status == 200
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def complete(self, name: str, tokens: int = 5, key: str = CLIENT_KEY) -> int:
        """Ask the router for one answer; return its status, 0 where none came."""
        body = {"model": "m", "prompt": "p", "max_tokens": tokens}
        try:
            return ask(self.port, "POST", "/v1/completions", body, key, name)[0]
        except (OSError, http.client.HTTPException):
            return 0


class Load:
    """Clients that ask one request after the other, each its own, until the end of the block."""

    def __init__(self, running: Running, clients: int = 6, tokens: int = 5) -> None:
        self._running, self._tokens = running, tokens
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number,)) for number in range(clients)
        ]
        # Id, status, when it was sent, when it ended.
        self.done: list[tuple[str, int, float, float]] = []

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for one in self._threads:
            one.join()

    def _work(self, client: int) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            name, began = f"load-{client}-{number}", time.monotonic()
            status = self._running.complete(name, self._tokens)
            self.done.append((name, status, began, time.monotonic()))

    def failed(self) -> list[tuple[str, int, float, float]]:
        return [one for one in self.done if one[1] != 200]

    def go_on(self, requests: int = 30) -> None:
        """Wait until so many more have been answered."""
        before = len(self.done)
        wait_until(lambda: len(self.done) >= before + requests)
