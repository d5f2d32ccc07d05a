"""Real processes, in both Pythons that node code has to run with."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process.supervisord_daemon import Daemon

HERE = Path(__file__).parent
SOURCE = HERE.parents[2] / "src"


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Return what the condition finds, as soon as it finds anything."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Tell whether a process runs; a dead one that nobody has collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def node(node_python: str) -> Callable[..., dict[str, Any]]:
    """Call node code in a process of its own that is gone when the call returns."""

    def call(kind: str, **request: Any) -> Any:
        done = subprocess.run(
            [node_python, str(HERE / "driver.py")],
            input=json.dumps({"kind": kind, **request}),
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


class Host:
    """One cluster's directories and its processes under supervisord."""

    def __init__(self, node: Callable[..., dict[str, Any]], root: Path, run_dir: str) -> None:
        self.node = node
        self.cluster_dir = root / "demo cluster"
        self.run_dir = run_dir
        self.root = root

    def manage(
        self,
        wanted: dict[str, Any] | None = None,
        state: str = "started",
        name: str = "e0-serve",
        cluster: str = "demo",
        stop_seconds: float = 1,
        **options: Any,
    ) -> dict[str, Any]:
        labels = {"cluster": cluster, "engine": "e0", "stop_timeout_seconds": stop_seconds}
        return self.node(
            "manage",
            cluster_dir=str(self.cluster_dir),
            run_dir=self.run_dir,
            python=sys.executable,
            name=name,
            wanted=wanted,
            state=state,
            labels=labels,
            **options,
        )

    def processes(self) -> dict[str, Any]:
        return self.node("processes", cluster_dir=str(self.cluster_dir))

    def programs(self) -> list[str]:
        """Return what its supervisord may start, by name."""
        daemon = Daemon(str(self.cluster_dir), self.run_dir, sys.executable)
        return [one["name"] for one in daemon.server().getAllProcessInfo()]

    def state(self, name: str = "e0-serve") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.cluster_dir / f"processes/{name}.state.json").read_text()
        )
        return found

    def everything(self) -> list[int]:
        """Return every process that names this test's directories, or carries our marker."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.root) in text and alive(int(entry.name)):
                found.append(int(entry.name))
        return found


@pytest.fixture
def host(node: Callable[..., dict[str, Any]], tmp_path: Path) -> Iterator[Host]:
    """Give a host whose processes are all gone when the test is over."""
    if importlib.util.find_spec("supervisor") is None:
        pytest.skip("the package supervisor is not installed beside pytest")
    # Not below tmp_path, whose name is too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="vllm-") as run_dir:
        made = Host(node, tmp_path, f"{run_dir}/run")
        yield made
        for name in list(made.processes()):
            made.manage(name=name, state="absent")
        assert made.everything() == []


@pytest.fixture
def stubborn(tmp_path: Path) -> dict[str, Any]:
    """Give a program that ignores SIGTERM and daemonizes twice."""
    return {"argv": [sys.executable, str(HERE / "stubborn.py"), str(tmp_path)]}
