"""An engine's stand-in under a real supervisord, started again as the watchdog's findings say."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.ranks import KEY
from tests.ports import free_ports
from tests.unit.router.client import listens
from tests.unit.router.running import wait_until
from vllm_ansible.node import launcher
from vllm_ansible.node.cluster import lock
from vllm_ansible.node.process import process
from vllm_ansible.node.process.manage import manage
from vllm_ansible.node.process.process import Files
from vllm_ansible.node.process.supervisord import Supervisord
from vllm_ansible.node.watchdog import restart, restart_allowed
from vllm_ansible.node.watchdog.restart import Restarts

EMULATOR = Path(__file__).parents[2] / "emulators/ranks.py"
LABELS = {"cluster": "demo", "engine": "r1", "stop_timeout_seconds": 1}
RUN = {"run": "site", "holder": {"name": "a run", "user": "ada", "host": "bastion"}, "since": 0}


class Head:
    """A cluster's head with one engine, and what the watchdog has found there."""

    def __init__(self, directory: Path, run_dir: str) -> None:
        self.cluster_dir, self.run_dir = directory / "cluster", run_dir
        self.cluster_dir.mkdir()
        self.lock = self.cluster_dir / "lock.json"
        (self.cluster_dir / "key").write_text(f"{KEY}\n")
        self.findings = directory / "run/watchdog/state.json"
        self.findings.parent.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self.files = Files(str(self.cluster_dir), "r1-serve")
        self.supervisor = Supervisord(str(self.cluster_dir), run_dir, sys.executable)

    def manage(self, state: str, *argv: str) -> dict[str, Any]:
        wanted = process.spec({"argv": argv}) if argv else None
        return manage(self.supervisor, self.files, wanted, LABELS, state, True)

    def start(self) -> bool:
        """Start the engine as a run does; return whether that changed anything."""
        words = [sys.executable, str(EMULATOR), "--port", str(self.port), "--ranks", "1"]
        changed = bool(self.manage("started", *words)["changed"])
        # It prints its number once it listens.
        wait_until(lambda: str(self.pid) in Path(self.files.log).read_text())
        return changed

    @property
    def pid(self) -> int:
        record = process.read_json(self.files.record)
        return self.supervisor.look(self.files, record).pid or 0

    def restarts(self, **changes: Any) -> Restarts:
        server = {"host": "h1", "address": "127.0.0.1", "port": self.port, "served_name": "m"}
        engine = {"name": "r1", "why": "", "processes": ["r1-serve"], "nodes": {}}
        engine |= {"servers": [{**server, "local": True}], "dashboard_port": 0}
        engine |= {"rungs": [], "hardware": "H200 x1"}
        engine |= changes.pop("engine", {})
        settings = {
            **{"mode": "auto", "cluster": "demo", "cluster_dir": str(self.cluster_dir)},
            **{"supervisor": "supervisord", "supervisor_dir": self.run_dir},
            **{"python": sys.executable, "run_dir": str(self.findings.parents[1])},
            **{"state_dir": str(self.cluster_dir / "restarts"), "ray_token_file": "none"},
            **{"key_file": str(self.cluster_dir / "key"), "most": 2, "within_seconds": 600},
            **{
                "start_seconds": 300,
                "silence_seconds": 300,
                "ends_at": 0,
                "engines": [engine],
                **changes,
            },
        }
        (self.cluster_dir / "restarts").mkdir(exist_ok=True)
        path = self.cluster_dir / "settings.json"
        path.write_text(json.dumps(settings))
        return Restarts(restart.read(str(path)), "command")

    def find(self, kind: str = "ended", **changes: Any) -> None:
        """Write what the watchdog would have found some seconds ago."""
        now = time.time()
        finding = {"kind": kind, "engine": "r1", "process": "r1-serve", "found": f"it is {kind}"}
        finding |= {"named_at": now - 6, "stacks": "s", "taken_at": now - 3, **changes}
        self.findings.write_text(json.dumps({"at": now, "findings": [finding]}))

    def kill(self) -> int:
        """End the engine, and return the number that it had."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.pid)
        self.find()
        return pid

    def kept(self) -> dict[str, Any]:
        path = self.cluster_dir / "restarts/state.json"
        return dict(json.loads(path.read_text())["engines"]["r1"]) if path.exists() else {}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with tempfile.TemporaryDirectory(prefix="wd-") as run_dir:
        made = Head(tmp_path_factory.mktemp("head"), f"{run_dir}/run")
        yield made
        made.manage("absent")


@pytest.fixture
def head(running: Head, monkeypatch: pytest.MonkeyPatch) -> Head:
    """Return the head with an engine that serves, and nothing of what was done before."""
    # Nobody writes the watchdog's state here while a busy machine starts an engine.
    monkeypatch.setattr(restart_allowed, "SILENT_SECONDS", 600.0)
    running.lock.unlink(missing_ok=True)
    (running.cluster_dir / "ladder.json").unlink(missing_ok=True)
    (running.cluster_dir / "restarts/state.json").unlink(missing_ok=True)
    running.start()
    return running


def test_an_engine_that_has_ended_is_started_as_it_was_and_counted(head: Head) -> None:
    digest = process.read_json(head.files.record)["digest"]  # type: ignore[index]
    before = head.kill()
    head.restarts().look()
    assert head.pid not in (0, before)
    record = process.read_json(head.files.record) or {}
    assert record["digest"] == digest and not record.get("stopped")
    assert not head.start(), "the next run changes nothing"
    kept = head.kept()
    assert kept["counts"] == {"ended": [1, 1]} and kept["held"] == ""
    (entry,) = kept["restarts"]
    assert entry["helped"] and entry["outcome"] == "it answers again"
    # The pid that the start before has printed: its log is begun anew.
    assert str(before) in Path(entry["logs"], "r1-serve.log").read_text()
    assert not head.lock.exists()


@pytest.mark.parametrize(
    ("first", "second", "between"),
    # A start stops what may be left of its own process.
    [("r2-serve-0", "r2-serve-1", []), ("r2-ray", "r2-serve", ["asked Ray"])],
)
def test_all_processes_are_stopped_before_the_first_is_started(
    head: Head, monkeypatch: pytest.MonkeyPatch, first: str, second: str, between: list[str]
) -> None:
    ports = dict(zip((first, second), free_ports(2), strict=True))
    every = {name: Files(str(head.cluster_dir), name) for name in ports}
    server = {"host": "h1", "address": "127.0.0.1", "served_name": "m", "local": True}
    servers = [{**server, "port": port} for port in ports.values()]
    engine = {"name": "r2", "processes": [first, second], "servers": servers}
    done: list[str] = []
    (head.cluster_dir / "token").write_text("token")
    monkeypatch.setattr(
        restart,
        "ask_nodes",
        lambda *_: done.append("asked Ray") or {"nodes": [{"alive": True}], "error": ""},
    )
    try:
        for name, port in ports.items():
            words = [sys.executable, str(EMULATOR), "--port", str(port), "--ranks", "1"]
            manage(head.supervisor, every[name], process.spec({"argv": words}), LABELS, "started")
        found = head.supervisor.look(every[second], None)
        os.kill(found.pid or 0, signal.SIGKILL)
        wait_until(lambda: not head.supervisor.look(every[second], None).running)
        head.find(engine="r2", process=second)
        token = str(head.cluster_dir / "token")
        restarts = head.restarts(engine=engine, ray_token_file=token)
        for verb in ("stop", "start"):
            real = getattr(restarts.supervisor, verb)

            def noted(files: Files, *more: Any, verb: str = verb, real: Any = real) -> Any:
                alive = " alive" if head.supervisor.look(files, None).running else ""
                done.append(f"{verb} {files.name}{alive}")
                return real(files, *more)

            monkeypatch.setattr(restarts.supervisor, verb, noted)
        restarts.look()
        assert restarts.kept()["r2"]["counts"] == {"ended": [1, 1]}
        stopped = [f"stop {second}", f"stop {first} alive"]
        started = [f"stop {first}", f"start {first}", *between, f"stop {second}", f"start {second}"]
        assert done == [*stopped, *started]
    finally:
        for files in every.values():
            manage(head.supervisor, files, None, LABELS, "absent")


def test_an_engine_that_hangs_is_stopped_first_and_a_second_look_does_nothing(head: Head) -> None:
    before = head.pid
    os.kill(before, signal.SIGSTOP)
    head.find("hung")
    restarts = head.restarts()
    restarts.look()
    after = head.pid
    assert after not in (0, before) and not Path(f"/proc/{before}").exists()
    # What was found before the restart says nothing of what runs now.
    restarts.look()
    assert head.pid == after and len(head.kept()["restarts"]) == 1


def test_a_start_that_lost_a_node_of_ray_holds_no_run_up(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is gone is counted by Ray for half a minute more, and the restart begins."""
    head.kill()
    restarts = head.restarts()
    lacks = iter(["", "", "Ray on h2: nothing joined"])
    monkeypatch.setattr(restart, "LOST_SECONDS", 0.5)
    monkeypatch.setattr(restarts, "_unready", lambda _: next(lacks, "Ray on h2: nothing joined"))
    monkeypatch.setattr(restarts, "_answer", lambda _: False)
    restarts.look()
    (entry,) = head.kept()["restarts"]
    assert entry["outcome"] == "cannot answer: Ray on h2: nothing joined" and not entry["helped"]
    assert not head.lock.exists()
    # It is not tried again, and what waits may still answer.
    restarts.look()
    assert len(head.kept()["restarts"]) == 1 and head.pid
    assert head.kept()["held"] == "it is not started again: Ray on h2: nothing joined"


def test_while_a_run_holds_the_cluster_nothing_is_started(head: Head) -> None:
    head.kill()
    lock.write(head.lock, RUN)
    head.restarts().look()
    assert head.pid == 0 and lock.read(head.lock) == RUN
    assert head.kept()["held"] == (
        "it is not started again: the run a run of ada@bastion holds the cluster"
    )
    head.lock.unlink()
    head.find()
    head.restarts().look()
    assert head.pid


def test_no_run_starts_during_a_restart_and_one_that_breaks_the_lock_is_left_alone(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts, seen = head.restarts(), []

    def answer(*_: Any) -> bool:
        seen.append(lock.read(head.lock))
        lock.write(head.lock, RUN)
        return False

    monkeypatch.setattr(restarts, "_answer", answer)
    head.kill()
    restarts.look()
    assert lock.verdict(seen[0], "site", []) == "held" and seen[0]["holder"]["restarts"]
    assert len(seen) == 1 and lock.read(head.lock) == RUN
    assert head.kept()["restarts"][0]["outcome"] == "was left to a run that has taken the lock"


@pytest.mark.parametrize("taken", ["lock", "record"])
def test_what_was_taken_between_stop_and_start_is_not_started(
    head: Head, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    restarts = head.restarts()
    stop = restarts.supervisor.stop

    def and_then(files: Any, record: Any, seconds: float) -> None:
        stop(files, record, seconds)
        if taken == "lock":
            lock.write(head.lock, RUN)
        else:
            Path(files.record).write_text(json.dumps({**record, "stopped": True}))

    monkeypatch.setattr(restarts.supervisor, "stop", and_then)
    head.kill()
    restarts.look()
    assert head.pid == 0
    told = {"lock": "left to a run that has taken the lock", "record": "r1-serve was stopped"}
    assert told[taken] in head.kept()["restarts"][0]["outcome"]


def test_the_lock_of_a_restart_by_hand_that_was_killed_is_removed_by_the_next_look(
    head: Head,
) -> None:
    holder = {**lock.holder_of(os.getpid(), "me"), "restarts": True, "start_time": 1}
    lock.write(head.lock, {"run": "r", "holder": holder, "since": 0})
    head.restarts(mode="ask").look()
    assert not head.lock.exists()


def test_the_lock_of_a_restart_that_was_killed_is_removed(head: Head) -> None:
    holder = {**lock.holder_of(os.getpid(), "me"), "restarts": True, "start_time": 1}
    lock.write(head.lock, {"run": "r", "holder": holder, "since": 0})
    head.restarts().forget_own()
    assert not head.lock.exists()
    lock.write(head.lock, {"run": "r", "holder": {**holder, "restarts": False}, "since": 0})
    head.restarts().forget_own()
    assert head.lock.exists()


def test_the_lock_of_a_restart_is_removed_after_its_container_was_restarted(head: Head) -> None:
    restarts = head.restarts()
    here = lock.holder_of(os.getpid(), "me")
    with restarts._alone(restarts.settings.engines[0]):
        assert not lock.abandoned(head.lock, here)
        kept = json.loads(head.lock.read_text())
    kept["holder"]["namespace"] = "pid:[1] time:[2]"
    lock.write(head.lock, kept)
    head.restarts().forget_own()
    assert not head.lock.exists()


def test_it_is_never_started_more_often_than_allowed(head: Head) -> None:
    restarts = head.restarts(most=1)
    head.kill()
    restarts.look()
    assert head.pid
    head.kill()
    restarts.look()
    assert head.pid == 0
    assert head.kept()["held"].endswith("1 restarts were made within 600 s, 1 are allowed")


def test_one_that_ends_again_while_it_loads_is_tried_again(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = head.restarts()
    monkeypatch.setattr(restarts, "_answer", lambda _: bool(head.kill() and False))
    head.kill()
    named = head.findings.read_text()
    restarts.look()
    assert head.kept()["restarts"][0]["outcome"].startswith("did not stay: r1-serve was killed")
    # The watchdog has not seen the one between.
    head.findings.write_text(named)
    monkeypatch.delattr(restarts, "_answer")
    restarts.look()
    assert head.pid and head.kept()["counts"] == {"ended": [2, 1]}


def test_ask_says_the_one_command_that_does_it(head: Head) -> None:
    head.kill()
    restarts = head.restarts(mode="ask")
    restarts.look()
    assert head.pid == 0 and not head.lock.exists()
    kept = head.kept()
    assert kept["held"] == "it would be started again: it is ended"
    assert kept["command"] == "command r1"
    assert restarts.by_hand(restarts.settings.engines[0]) == 0
    assert head.pid and head.kept()["counts"] == {"ended": [1, 1]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ends_at": 1.0}, "this machine ends within"),
        ({"engine": {"why": "it is served from n2"}}, "it is served from n2"),
        (
            {"engine": {"nodes": {"n2": {"address": "10.0.0.2", "devices": 1}}}},
            "no Ray token",
        ),
    ],
)
def test_what_cannot_help_is_said_and_not_done(
    head: Head, changes: dict[str, Any], words: str
) -> None:
    head.kill()
    head.restarts(**changes).look()
    assert head.pid == 0 and words in head.kept()["held"]


def test_a_watchdog_whose_state_gets_old_is_named_as_why_nothing_is_restarted(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_allowed, "SILENT_SECONDS", 15.0)
    head.kill()
    # As it was before the file system was full.
    head.findings.write_text(json.dumps({"at": time.time() - 20, "findings": []}))
    restarts = head.restarts()
    restarts.look()
    assert head.pid == 0
    held = head.kept()["held"]
    assert held.startswith("it is not started again: the watchdog's state is more than 15 s old")
    # By hand it is, and what is stopped on purpose needs no watchdog.
    assert restarts.by_hand(restarts.settings.engines[0]) == 0 and head.pid
    head.manage("stopped")
    restarts.look()
    assert head.kept()["held"] == ""


def test_why_nothing_is_restarted_is_kept_where_no_space_is_left(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    head.kill()
    restarts = head.restarts()
    found = "the file system of /opt/c on h1 is full"
    head.find("full", found=found)
    full = json.loads(head.findings.read_text())
    head.find()
    ended = json.loads(head.findings.read_text())
    head.findings.write_text(
        json.dumps({**full, "findings": [*full["findings"], *ended["findings"]]})
    )

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(launcher, "write_json", no_space)
    restarts.look()
    assert head.kept()["held"] == f"it is not started again: {found}"


def test_no_link_or_fifo_of_the_service_is_followed_or_waited_for(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "state.json").write_text('{"at": 1}')
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "real").mkdir()
    (run_dir / "watchdog").symlink_to(there)
    (run_dir / "real/state.json").symlink_to(there / "state.json")
    assert restart.untrusted(str(tmp_path), "there") == {"at": 1}
    assert restart.untrusted(str(run_dir), "watchdog") == {}
    assert restart.untrusted(str(run_dir), "real") == {}
    (run_dir / "real/state.json").unlink()
    os.mkfifo(run_dir / "real/state.json")
    assert restart.untrusted(str(run_dir), "real") == {}


def test_what_was_stopped_on_purpose_stays_stopped(head: Head) -> None:
    head.manage("stopped")
    head.find()
    head.restarts().look()
    assert head.pid == 0 and not head.kept().get("held")


def test_one_that_does_not_answer_in_time_is_no_help_and_tried_again(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts = head.restarts(start_seconds=0)
    monkeypatch.setattr(restarts, "_answer", lambda _: False)
    head.kill()
    restarts.look()
    first = head.pid
    assert head.kept()["restarts"][0]["outcome"] == "has not answered within 0 s"
    head.findings.write_text(json.dumps({"at": time.time(), "findings": []}))
    restarts.look()
    assert head.pid not in (0, first)
    assert head.kept()["counts"] == {"ended": [1, 0], "unanswered": [1, 0]}
    monkeypatch.delattr(restarts, "_answer")
    wait_until(lambda: listens(head.port))
    restarts.look()
    assert not head.kept()["restarts"][-1]["unanswered"]
