"""The watchdog's own program beside stand-ins for an engine's processes, which can be harmed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.emulators.ranks import KEY
from tests.ports import free_ports

ROOT = Path(__file__).parents[3]
NODE = ROOT / "src/vllm_ansible/node"
MARKER = "VLLM_ANSIBLE_PROCESS"


class Running:
    """An engine `r1` of two ranks and the watchdog of its host, until the end of a with block."""

    def __init__(self, directory: Path, answer_seconds: float = 5.0) -> None:
        self.directory, self.answer_seconds = directory, answer_seconds
        (self.port,) = free_ports(1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.state_dir = directory / "state"

    def __enter__(self) -> Self:
        self.cluster = self.directory / "cluster"
        (self.cluster / "processes").mkdir(parents=True)
        (self.cluster / "key").write_text(f"{KEY}\n")
        self.engine = self._run(
            ["tests/emulators/ranks.py", "--port", str(self.port)], "r1-serve", ROOT
        )
        program = self.directory / "program"
        shutil.copytree(NODE / "watchdog", program / "node/watchdog")
        for one in ("awake.py", "launcher.py"):
            shutil.copy(NODE / one, program / "node")
        shutil.copy(ROOT / "roles/watchdog/files/main.py", program)
        settings = self.directory / "settings.json"
        settings.write_text(json.dumps(self.settings()))
        self.watchdog = self._run([str(program / "main.py"), str(settings)], "watchdog", program)
        return self

    def settings(self) -> dict[str, Any]:
        server = {"host": "h1", "address": "127.0.0.1", "port": self.port, "served_name": "m"}
        engine = {"name": "r1", "ranks": [0, 1], "peers": [], "server": {**server, "local": True}}
        return {
            **{"host": "h1", "cluster_dir": str(self.cluster), "state_dir": str(self.state_dir)},
            **{"key_file": str(self.cluster / "key"), "py_spy": "", "on_processors": False},
            **{"answer_seconds": self.answer_seconds, "engines": [engine]},
        }

    def _run(self, words: list[str], name: str, cwd: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARKER: str(self.cluster / f"processes/{name}.json")}
        log = (self.directory / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, *words], env=environment, cwd=cwd, stdout=log, stderr=log
        )
        self.processes.append(process)
        return process

    def __exit__(self, *_: object) -> None:
        for pid in [*self.ranks().values(), *(one.pid for one in self.processes)]:
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for one in self.processes:
            one.wait()

    def ranks(self) -> dict[str, int]:
        """Return the number of each rank that lives, by its title."""
        found = {}
        children = Path(f"/proc/{self.engine.pid}/task/{self.engine.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            with suppress(OSError):  # it may have ended just now
                title = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
                if title.startswith("VLLM::"):
                    found[title] = int(pid)
        return found

    def state(self) -> dict[str, Any]:
        path = self.state_dir / "state.json"
        return json.loads(path.read_text()) if path.exists() else {"findings": [], "engines": {}}

    def named(self) -> list[dict[str, Any]]:
        return list(self.state()["findings"])

    def ask(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), headers
        )
        urllib.request.urlopen(request, timeout=240).read()  # noqa: S310

    def set(self, **more: Any) -> None:
        self.ask("/set", more)

    def question_seen(self) -> bool:
        """Tell whether the watchdog, which alone reads the counts, has seen one that runs."""
        url = f"http://127.0.0.1:{self.port}/told"
        return bool(json.loads(urllib.request.urlopen(url, timeout=240).read()))

    def looked(self) -> None:
        """Wait until the watchdog has looked once more."""
        before = self.state()["at"]
        self.until(lambda: self.state()["at"] > before)

    def until(self, what: Callable[[], Any], seconds: float = 240) -> Any:
        """Wait until something holds; a very busy machine takes its time."""
        deadline = time.monotonic() + seconds
        while not (found := what()):
            log = (self.directory / "watchdog.log").read_text()
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.state()}\n{log}"
            time.sleep(0.1)
        return found

    def serves(self) -> None:
        """Wait until the watchdog has seen the engine answer, and its ranks for long enough."""
        self.until(
            lambda: self.state()["engines"].get("r1") == "serving" and len(self.ranks()) == 2
        )
