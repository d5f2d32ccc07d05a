"""Real engines in a lab, harmed while they serve: named, and started again by themselves.

Each fault is a test of its own and needs no other, so that any of them may be run alone:
`pytest -s -m soak tests/flows/test_watchdog.py -k link`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import Lab, LabError
from vllm_ansible.lab.commands import podman

from .clone import MINUTE, Ran, wait_until
from .greedy import ASK
from .two_hosts import CLUSTER_DIR, TwoHosts

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
HOSTS = ("lab1", "lab2")
SHM = "/dev/shm"  # noqa: S108 that of the hosts
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
# Fills a file system up to its last bytes; prints when it was full.
FILL = """
import os, sys, time
with open(sys.argv[1], "wb", buffering=0) as handle:
    for size in (1 << 20, 1 << 12):
        try:
            while True:
                handle.write(bytes(size))
        except OSError:
            pass
print(time.time())
"""
# Puts a process into a group with little memory, and fills that from beside it; prints when.
USE_UP = """
import json, os, subprocess, sys, time
pid = sys.argv[1]
found = ""
for line in open(f"/proc/{pid}/cgroup").read().splitlines():
    _, controllers, path = line.split(":", 2)
    for root in ("/sys/fs/cgroup/memory" + path, "/sys/fs/cgroup/memory"):
        if "memory" in controllers.split(",") and os.path.isdir(root):
            found = found or root
if not found:
    print(json.dumps(0))
    raise SystemExit
group = os.path.join(found, "little")
os.makedirs(group, exist_ok=True)
open(group + "/memory.limit_in_bytes", "w").write(str(64 << 20))
open(group + "/cgroup.procs", "w").write(pid)
time.sleep(6)  # three looks of the watchdog
at = time.time()
fills = "/dev/shm/vllm-test"
takes = f'echo $$ > "{group}/cgroup.procs"; exec dd if=/dev/zero of={fills} bs=64k count=4096'
subprocess.run(["sh", "-c", takes], stderr=subprocess.DEVNULL)
os.unlink(fills)
print(json.dumps(at))
"""
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
        self.directory = directory
        variables = self.inventory / "group_vars/all.yml"
        content = yaml.safe_load(variables.read_text())
        content |= {"engines": ENGINES, "watchdog_mode": "observe", "watchdog_restart": "auto"}
        content |= {"watchdog_restarts": 10, "vllm_reference_gib": 0}
        variables.write_text(yaml.safe_dump(content))

        self.rows: list[str] = []

    def row(self, what: str, named: float, where: str, *others: str) -> None:
        """Print a line of the table, and keep it for all of them."""
        self.rows.append(f"| {what} | {named:.1f} | {where} | {' | '.join(others)} |")
        print(self.rows[-1])

    def works(self) -> bool:
        """Tell whether all engines answer and nothing is found."""
        try:
            return not any(self.named(host)["findings"] for host in HOSTS) and all(
                "Paris" in self.answer(str(one["name"])) for one in ENGINES
            )
        except (LabError, KeyError):
            return False

    def until_named(
        self, began: float, kind: tuple[str, ...], engine: str, words: str = ""
    ) -> tuple[float, str, dict[str, Any]]:
        """Return after how many seconds what was found was named, and by which host."""

        def first() -> Any:
            found = [
                (one["named_at"], host, one)
                for host in HOSTS
                for where in ("findings", "past")
                for one in self.named(host)[where]
                if one["engine"] == engine and one["named_at"] >= began
                if one["kind"] in kind and words in one["found"]
            ]
            return min(found, key=lambda one: one[0], default=None)

        at, host, one = wait_until(first, 3 * MINUTE, f"{' or '.join(kind)} of {engine}")
        return at - began, host, one

    def free(self) -> bool:
        """Tell whether nobody holds the cluster."""
        held = ["test", "!", "-e", f"{CLUSTER_DIR}/lock.json"]
        return self.lab.run("lab1", held, check=False).returncode == 0

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
        print("\n".join(["| harm | named after | by | then |", *made.rows]))
        made.lab.down()


@pytest.fixture
def serving(watched: Watched) -> Watched:
    """Return engines that answer, whatever the test before has left."""
    if not watched.works():
        watched.serve()
        wait_until(watched.works, 5 * MINUTE, "engines that answer, and nothing found")
    return watched


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
    serving: Watched, engine: str, host: str, record: str, title: str, signal: str
) -> None:
    watched = serving
    pid = watched.rank(host, record, title)
    named, restart = watched.harm(host, pid, signal, engine)
    assert named <= NAMED_SECONDS
    assert restart["helped"], restart
    assert "Paris" in watched.answer(engine)
    wait_until(lambda: not watched.lives(host, pid), MINUTE, "the end of what was harmed")
    wait_until(lambda: not watched.named("lab1")["findings"], MINUTE, "nothing found any more")


def test_a_cut_link_is_named_and_the_engine_goes_on_once_it_is_back(serving: Watched) -> None:
    link = serving.lab.link("lab2")
    began = time.time()
    link.cut()
    try:
        named, host, one = serving.until_named(began, ("unreachable",), "chat")
    finally:
        link.restore()
    back = time.time()
    assert "lab2" in one["found"] or host == "lab2"
    answer = serving.answer("chat")
    serving.row(
        "a link is cut", named, host, f"answers {time.time() - back:.0f} s after it is back"
    )
    assert "Paris" in answer and named <= NAMED_SECONDS
    wait_until(serving.works, 5 * MINUTE, "nothing found any more")


def test_a_slow_link_is_named_while_it_lasts(serving: Watched) -> None:
    link = serving.lab.link("lab2")
    began = time.time()
    link.limit(delay="200ms")
    try:
        named, host, one = serving.until_named(began, ("slow",), "chat")
        answer = serving.answer("chat")
    finally:
        link.restore()
    serving.row("a link is slow, 200 ms each way", named, host, "answers meanwhile")
    assert "lab2" in one["found"] or host == "lab2"
    assert "Paris" in answer and named <= NAMED_SECONDS
    wait_until(serving.works, 5 * MINUTE, "nothing found any more")


def test_a_full_file_system_is_named_by_host_and_path(serving: Watched) -> None:
    # The lab's disk is this machine's; memory that processes share has a file system of its own.
    lab = serving.lab
    before = lab.run("lab2", ["findmnt", "-n", "-b", "-o", "SIZE,USED", SHM]).stdout.split()
    small = int(before[1]) + (64 << 20)
    lab.run("lab2", ["mount", "-o", f"remount,size={small}", SHM])
    try:
        began = float(serving.python("lab2", FILL, f"{SHM}/fills"))
        named, host, one = serving.until_named(began, ("full",), "chat")
    finally:
        lab.run("lab2", ["rm", "-f", f"{SHM}/fills"])
        lab.run("lab2", ["mount", "-o", f"remount,size={before[0]}", SHM])
    serving.row(f"{SHM} is full", named, host, "answers")
    assert host == "lab2" and f"{SHM} on lab2 is full" in one["found"]
    assert "Paris" in serving.answer("chat") and named <= NAMED_SECONDS
    wait_until(serving.works, 5 * MINUTE, "nothing found any more")


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_named_by_that(serving: Watched) -> None:
    before = len(serving.restarts("solo"))
    began = serving.python("lab1", USE_UP, str(serving.rank("lab1", "solo-serve", CORE)))
    if not began:
        pytest.skip("this machine gives its lab no groups of memory")
    named, host, one = serving.until_named(began, ("memory",), "solo")
    done = wait_until(
        lambda: [one for one in serving.restarts("solo")[before:] if "ended_at" in one],
        10 * MINUTE,
        "solo started again",
    )
    again = f"answers after {done[-1]['ended_at'] - began:.0f} s"
    serving.row("memory is used up, the engine core killed", named, host, again)
    assert (
        host == "lab1"
        and "of the processes of solo-serve on lab1 for want of memory" in one["found"]
    )
    assert done[-1]["helped"] and named <= NAMED_SECONDS


@pytest.mark.parametrize(("host", "title"), [("lab1", "gcs_server"), ("lab2", "raylet")])
def test_what_ray_cannot_be_without_is_named_and_a_run_forms_it_again(
    serving: Watched, host: str, title: str
) -> None:
    pids = [
        int(pid)
        for pid, words in serving.python(host, TITLES, "chat-ray").items()
        if words.split(" ")[0].endswith(f"/{title}")
    ]
    assert len(pids) == 1, pids
    began = time.time()
    serving.lab.run(host, ["kill", "-KILL", str(pids[0])])
    named, by, one = serving.until_named(began, ("lost", "ended"), "chat")
    assert by == host, one
    # Which of its processes ended first is not told of a node that has ended whole.
    assert title in one["found"] or "chat-ray" in one["found"]

    def held() -> str:
        path = f"{CLUSTER_DIR}/watchdog/restarts/state.json"
        try:
            kept = serving.python("lab1", READ, path)["engines"]
        except LabError:
            return ""
        return str(kept.get("chat", {}).get("held", ""))

    why = wait_until(held, 5 * MINUTE, "why it is not started again")
    again = time.time()
    serving.serve()
    taken = f"`site.yml` serves again after {time.time() - again:.0f} s"
    serving.row(f"SIGKILL of `{title}` on {host}", named, by, taken)
    print(f"not started again: {why}")
    assert named <= NAMED_SECONDS
    assert "Paris" in serving.answer("chat")


def test_a_host_that_is_gone_is_named_and_a_run_takes_it_in_again(serving: Watched) -> None:
    container = serving.lab.record.host("lab2").container
    began = time.time()
    podman("kill", container)
    try:

        def first() -> Any:
            found = serving.named("lab1")
            return [
                one["named_at"]
                for where in ("findings", "past")
                for one in found[where]
                if one["kind"] == "unreachable" and one["named_at"] >= began
            ]

        named = min(wait_until(first, 3 * MINUTE, "the host named")) - began
    finally:
        # It comes back as after a power loss: its disk is there, and no process.
        serving.lab = Lab.create(
            hosts=2,
            name="flow-test",
            second_network=True,
            inventory=serving.inventory,
            root=serving.directory,
        )
    again = time.time()
    # The watchdog sees it come back, too, and may act first; a run is refused meanwhile.
    ran = serving.start(*SKIPPED).result(40 * MINUTE)
    if ran.status:
        assert "another run holds this cluster: restart of chat" in ran.output
        wait_until(serving.free, 10 * MINUTE, "the watchdog's own start ended", every=1)
        serving.serve()
    taken = f"once it is back, `site.yml` serves again after {time.time() - again:.0f} s"
    serving.row("a host is gone", named, "lab1", taken)
    assert named <= NAMED_SECONDS
    assert "Paris" in serving.answer("chat")


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
    watched.row("SIGSTOP of a rank while it loads", seconds, "`site.yml`", "it goes on by SIGCONT")
    assert f"{stopped['pid']} on lab2 came as far as loading, others as far as" in line
    assert seconds <= NAMED_LOADING_SECONDS
    ran = running.result(40 * MINUTE)
    assert ran.status == 0, ran.output
    assert "Paris" in watched.answer("chat")


def test_afterwards_a_run_changes_nothing_and_status_says_what_helped(serving: Watched) -> None:
    assert serving.serve().changed == []
    ran = serving.run(playbook="playbooks/status.yml")
    assert ran.status == 0, ran.output
    said = " ".join(ran.output.split())
    for engine in {name for name in ("chat", "solo") if serving.restarts(name)}:
        assert f"restarts: {engine}: helped: " in said and "it answers again" in said


def test_with_off_nothing_is_started_again(serving: Watched) -> None:
    watched = serving
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
