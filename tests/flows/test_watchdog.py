"""Real engines in a lab, harmed while they serve: named, and started again by themselves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import LabError

from .clone import MINUTE, Ran, wait_until
from .greedy import ASK
from .two_hosts import CLUSTER_DIR, TwoHosts

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
NAMED_SECONDS, NAMED_LOADING_SECONDS = 30.0, 60.0
CHAT = "package:smollm2-135m-instruct"
PARIS = {"prompt": "What is the capital of France?", "expect": "Paris"}
ARGUMENTS = {"enforce_eager": True, "max_model_len": 512, "dtype": "float32"}
ENGINES: list[dict[str, Any]] = [
    {
        **{"name": "chat", "model": CHAT, "layout": {"tensor": 1, "pipeline": 2}, "nodes": 2},
        **{"vllm_args": {**ARGUMENTS, "kv_cache_memory_bytes": 1 << 27}, "probe": PARIS},
    },
    {
        **{"name": "solo", "model": CHAT, "executor": "mp", "hosts": ["lab1"]},
        **{"layout": {"tensor": 1, "pipeline": 1}, "probe": PARIS},
        "vllm_args": {**ARGUMENTS, "kv_cache_memory_bytes": 1 << 27},
    },
]
# Every process of a record, by its number, with its title.
TITLES = """
import json, os, sys
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            if f"/processes/{sys.argv[1]}.json".encode() in handle.read():
                with open(f"/proc/{pid}/cmdline", "rb") as words:
                    found[pid] = words.read().replace(bytes(1), b" ").decode().strip()
    except OSError:
        pass
print(json.dumps(found))
"""
# An engine that was started again is measured again: no part of what is looked at here.
SKIPPED = ("--skip-tags", "benchmark")
READ = "import sys; print(open(sys.argv[1]).read())"
# Stops the rank of this host as soon as its own log says that it loads.
STOP_LOADING = """
import glob, json, os, signal, time
end = time.time() + 1800
while time.time() < end:
    for path in glob.glob("/run/vllm-demo/*/session_2*/logs/worker-*"):
        pid = int(os.path.splitext(path)[0].rpartition("-")[2])
        with open(path, errors="replace") as handle:
            loads = "Starting to load model" in handle.read()
        if loads and os.path.exists(f"/proc/{pid}"):
            os.kill(pid, signal.SIGSTOP)
            print(json.dumps({"pid": pid, "at": time.time()}))
            raise SystemExit
    time.sleep(0.05)
"""


class Watched(TwoHosts):
    """The hosts, with an engine over both of them by Ray, and one of the head's own processes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        variables = self.inventory / "group_vars/all.yml"
        content = yaml.safe_load(variables.read_text())
        content |= {"engines": ENGINES, "watchdog_mode": "observe", "watchdog_restart": "auto"}
        content |= {"watchdog_restarts": 10, "vllm_reference_gib": 0}
        variables.write_text(yaml.safe_dump(content))

    def serve(self, *arguments: str) -> Ran:
        # At a load of 20 the environment alone took 20 minutes.
        ran = self.start(*arguments, *SKIPPED).result(40 * MINUTE)
        assert ran.status == 0, ran.output
        return ran

    def rank(self, host: str, record: str, title: str) -> int:
        """Return the number of the process of a record whose title has this in its first word."""
        found = self.python(host, TITLES, record)
        (pid,) = [int(pid) for pid, words in found.items() if title in words.split(" ")[0]]
        return pid

    def lives(self, host: str, pid: int) -> bool:
        return self.lab.run(host, ["test", "-e", f"/proc/{pid}"], check=False).returncode == 0

    def named(self, host: str) -> dict[str, Any]:
        """Return the state file of the watchdog of a host."""
        return dict(self.python(host, READ, "/run/vllm-demo/watchdog/state.json"))

    def restarts(self, engine: str) -> list[dict[str, Any]]:
        path = f"{CLUSTER_DIR}/watchdog/restarts/state.json"
        try:
            kept = self.python("lab1", READ, path)["engines"]
        except LabError:  # it is written with the first restart
            return []
        return list(kept.get(engine, {}).get("restarts", []))

    def answer(self, engine: str) -> str:
        ports = self.plan[engine]["ports"]
        url = f"http://{self.lab.address('lab1')}:{ports['api']}"
        key = f"{CLUSTER_DIR}/secrets/api_key"
        return str(self.python("lab1", ASK, url, key, self.plan[engine]["served_name"])["text"])

    def harm(self, host: str, pid: int, signal: str, engine: str) -> tuple[float, dict[str, Any]]:
        """Send a signal; return after how many seconds it was named, and the restart that came."""
        before = len(self.restarts(engine))
        began = time.time()
        self.lab.run(host, ["kill", f"-{signal}", str(pid)])

        def first() -> float:
            times = [
                one["named_at"]
                for where in ("lab1", "lab2")
                for kind in ("findings", "past")
                for one in self.named(where)[kind]
                if one["engine"] == engine and one["named_at"] >= began
            ]
            return min(times, default=0.0)

        named = wait_until(first, 3 * MINUTE, f"{engine} named") - began
        done = wait_until(
            lambda: [one for one in self.restarts(engine)[before:] if "ended_at" in one],
            10 * MINUTE,
            f"{engine} started again",
        )
        print(
            f"{engine}: {signal} on {host} named after {named:.1f} s, "
            f"answers after {done[-1]['ended_at'] - began:.1f} s, "
            f"{done[-1]['ended_at'] - done[-1]['at']:.1f} s of them its start; {done[-1]}"
        )
        return named, done[-1]


@pytest.fixture(scope="module")
def watched(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if kept := os.environ.get("VLLM_ANSIBLE_FLOW_DIR"):
        made = Watched(Path(kept))
        made.serve()
        yield made
        return
    made = Watched(tmp_path_factory.mktemp("watched"))
    try:
        made.serve()
        yield made
    finally:
        # Also of one that did not come up.
        made.lab.down()


RAY_RANK, CORE = "ray::RayWorker", "VLLM::EngineCore"


@pytest.mark.parametrize(
    ("engine", "host", "record", "title", "signal"),
    [
        ("chat", "lab2", "chat-ray", RAY_RANK, "KILL"),
        ("chat", "lab2", "chat-ray", RAY_RANK, "STOP"),
        ("chat", "lab1", "chat-ray", RAY_RANK, "KILL"),
        ("solo", "lab1", "solo-serve", CORE, "KILL"),
        ("solo", "lab1", "solo-serve", CORE, "STOP"),
    ],
)
def test_a_harmed_rank_is_named_and_its_engine_answers_again_by_itself(
    watched: Watched, engine: str, host: str, record: str, title: str, signal: str
) -> None:
    comes_back(watched, engine, host, record, title, signal)


def comes_back(
    watched: Watched, engine: str, host: str, record: str, title: str, signal: str
) -> None:
    pid = watched.rank(host, record, title)
    named, restart = watched.harm(host, pid, signal, engine)
    assert named <= NAMED_SECONDS
    assert restart["helped"], restart
    assert "Paris" in watched.answer(engine)
    wait_until(lambda: not watched.lives(host, pid), MINUTE, "the end of what was harmed")
    wait_until(lambda: not watched.named("lab1")["findings"], MINUTE, "nothing found any more")


def test_a_rank_that_is_stopped_while_it_loads_is_named_by_host_and_rank(watched: Watched) -> None:
    assert watched.run(playbook="playbooks/stop.yml").status == 0
    running = watched.start(*SKIPPED)
    stopped = watched.python("lab2", STOP_LOADING)
    try:

        def said() -> str:
            lines = running.console.read_text().splitlines()
            return next((line for line in lines if "nothing new for" in line), "")

        line = wait_until(said, 3 * MINUTE, "the rank named")
        seconds = time.time() - stopped["at"]
    finally:
        watched.lab.run("lab2", ["kill", "-CONT", str(stopped["pid"])])
    print(f"named {seconds:.0f} s after SIGSTOP: {line}")
    assert f"{stopped['pid']} on lab2 came as far as loading, others as far as" in line
    assert seconds <= NAMED_LOADING_SECONDS
    ran = running.result(40 * MINUTE)
    assert ran.status == 0, ran.output
    assert "Paris" in watched.answer("chat")


def test_afterwards_a_run_changes_nothing_and_status_says_what_helped(watched: Watched) -> None:
    assert watched.serve().changed == []
    ran = watched.run(playbook="playbooks/status.yml")
    assert ran.status == 0, ran.output
    said = " ".join(ran.output.split())
    assert "restarts: chat: helped: " in said and "it answers again" in said


def test_with_off_nothing_is_started_again(watched: Watched) -> None:
    off = ("-e", json.dumps({"watchdog_restart": "off"}))
    watched.serve(*off)
    watched.lab.run("lab1", ["test", "!", "-e", f"{CLUSTER_DIR}/processes/watchdog-restarts.json"])
    pid = watched.rank("lab1", "solo-serve", CORE)
    watched.lab.run("lab1", ["kill", "-KILL", str(pid)])
    kinds = lambda: [one["kind"] for one in watched.named("lab1")["findings"]]  # noqa: E731
    wait_until(lambda: "ended" in kinds(), 2 * MINUTE, "the end of the engine named")
    time.sleep(MINUTE)
    assert "ended" in kinds()
    assert watched.python("lab1", TITLES, "solo-serve") == {}


def test_teardown_leaves_nothing(watched: Watched) -> None:
    ran = watched.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert watched.processes() == {"lab1": [], "lab2": []}
