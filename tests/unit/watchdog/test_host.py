"""What is named of a host itself: full disks, memory that is used up, a clock that was set."""

from __future__ import annotations

import errno
import io
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.watchdog import host as module
from vllm_ansible.node.watchdog import main, state_file
from vllm_ansible.node.watchdog.finding import Finding
from vllm_ansible.node.watchdog.host import LOOKS, Host, counters, directory, kills
from vllm_ansible.node.watchdog.main import Watchdog, say
from vllm_ansible.node.watchdog.settings import Engine, Settings
from vllm_ansible.node.watchdog.snapshot import Process

RANK = Process(11, 110, 10, "ray::RayWorker", "ray::RayWorkerProc.run", "S", 0)
GROUPS = {"r1-ray": {11: RANK}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        host="h1",
        cluster_dir=str(tmp_path / "cluster"),
        state_dir=str(tmp_path / "state"),
        key_file="/k",
        py_spy="",
        answer_seconds=20,
        on_processors=False,
        engines=(Engine("r1", (2,)), Engine("r2", (0,))),
    )


@pytest.fixture
def host(settings: Settings, tmp_path: Path) -> Host:
    memory(tmp_path, 10_000_000)
    one = Host(settings, str(tmp_path / "meminfo"))
    # No disk of this machine.
    one.paths = ()
    return one


def memory(directory: Path, available: int) -> None:
    text = f"MemTotal: 20000000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\nOther: 1\n"
    (directory / "meminfo").write_text(text)


def words(host: Host, now: float = 100.0, step: float = 0.0) -> list[tuple[str, str, str]]:
    return [(one.engine, one.kind, one.found) for one in host.look({}, now, step)]


def test_a_full_file_system_is_named_of_every_engine_and_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = {"f_bavail": 500, "f_favail": 5}
    real = os.statvfs

    def small(path: str) -> Any:
        values = list(real(path))
        values[1], values[2], values[4] = 1 << 20, 1000, left["f_bavail"]
        values[5], values[7] = 1000, left["f_favail"]
        return os.statvfs_result(values)

    monkeypatch.setattr(module.os, "statvfs", small)
    host.paths = (str(tmp_path), str(tmp_path / "none"), str(tmp_path))
    assert words(host) == []
    left.update(f_bavail=2)
    (first, second) = host.look({}, 100.0, 0.0)
    assert (first.engine, second.engine) == ("r1", "r2")
    assert f"the file system of {tmp_path} on h1 is full: 2 of 1000 MiB are left" == first.found
    # It is full since it was first seen, also after the clock was set back.
    assert {one.since for one in host.look({}, 60.0, -50.0) if one.kind == "full"} == {50.0}
    left.update(f_bavail=500, f_favail=0)
    full = [found for _, kind, found in words(host, 70.0) if kind == "full"]
    assert full == [f"the file system of {tmp_path} on h1 is full: 0 of 1000 inodes are left"] * 2
    left.update(f_favail=1)
    assert "full" not in {kind for _, kind, _ in words(host, 80.0)}


def test_memory_is_used_up_after_several_looks(host: Host, tmp_path: Path) -> None:
    memory(tmp_path, 150_000)
    for _ in range(LOOKS - 1):
        assert words(host) == []
    found = "the memory of h1 is used up: 146 of 19531 MiB are available"
    assert words(host) == [("r1", "memory", found), ("r2", "memory", found)]
    memory(tmp_path, 900_000)
    assert words(host) == []


def test_a_clock_that_was_set_is_named_for_a_minute(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, by = time.time, [0.0]
    monkeypatch.setattr(module.time, "time", lambda: real() + by[0])
    assert (host.stepped(), host.stepped()) == (0.0, 0.0)
    by[0] = -3600.0
    step = host.stepped()
    assert step == pytest.approx(-3600, abs=60)
    assert words(host, 100.0, step)[0] == ("r1", "clock", "the clock of h1 was set back by 3600 s")
    assert host.stepped() == 0.0
    assert words(host, 159.0)
    assert words(host, 161.0) == []
    assert "was set forward by 60 s" in words(host, 200.0, 60.0)[0][2]


def test_what_the_kernel_killed_is_named_of_its_engine(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events = tmp_path / "system.slice/r1.service/memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("low 0\noom_kill 4\n")
    above = tmp_path / "system.slice/memory.events"
    above.write_text("oom_kill 7\n")
    monkeypatch.setattr(module, "counters", lambda pid: [str(events)] if pid == 11 else [])
    assert host.look(GROUPS, 100.0, 0.0) == []
    assert host.look(GROUPS, 102.0, 0.0) == []
    events.write_text("low 0\noom_kill 5\n")
    above.write_text("oom_kill 8\n")
    (found,) = host.look(GROUPS, 104.0, 0.0)
    assert (found.engine, found.kind, found.process) == ("r1", "memory", "r1-ray")
    expected = "the kernel has killed 1 of the processes of r1-ray on h1 for want of memory"
    assert found.found == expected
    assert host.look(GROUPS, 165.0, 0.0) == []
    # systemd ends the unit in the same moment, and its group is gone.
    above.write_text("oom_kill 9\n")
    events.unlink()
    (found,) = host.look({}, 170.0, 0.0)
    assert found.found == expected
    assert len(host.look({}, 172.0, 0.0)) == 1


def test_what_the_kernel_killed_in_a_shared_group_is_named_only_of_who_has_gone(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container without systemd."""
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 0\n")
    monkeypatch.setattr(module, "counters", lambda _: [str(events)])
    pids = {"r1-ray": 10, "r1-serve": 11, "r2-serve": 12}
    every = {name: {pid: replace(RANK, pid=pid)} for name, pid in pids.items()}
    assert host.look(every, 100.0, 0.0) == []
    # The one that is killed takes longer to end, or was none of these.
    events.write_text("oom_kill 1\n")
    found = host.look(every, 102.0, 0.0)
    assert [(one.engine, one.process) for one in found] == [("r1", ""), ("r2", "")]
    assert {one.found for one in found} == {
        "the kernel has killed 1 of the processes of r1-ray, r1-serve, r2-serve "
        "(one memory cgroup) on h1 for want of memory"
    }
    events.write_text("oom_kill 2\n")
    left = {name: group for name, group in every.items() if name != "r2-serve"}
    (found,) = [one for one in host.look(left, 170.0, 0.0) if one.kind == "memory"]
    assert (found.engine, found.process) == ("r2", "r2-serve")
    expected = "the kernel has killed 1 of the processes of r2-serve on h1 for want of memory"
    assert found.found == expected
    # What was killed once none of them runs is not theirs.
    assert host.look({}, 240.0, 0.0) == []
    events.write_text("oom_kill 3\n")
    assert host.look({}, 242.0, 0.0) == []


def test_a_group_that_ends_without_a_kill_is_none(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    control = tmp_path / "memory.oom_control"
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert kills(str(control)) == 0
    monkeypatch.setattr(module, "counters", lambda _: [str(control)])
    host.look(GROUPS, 100.0, 0.0)
    control.unlink()
    assert host.look({}, 102.0, 0.0) == []


def test_the_counters_of_a_process_are_those_of_its_groups(tmp_path: Path) -> None:
    text = Path(f"/proc/{os.getpid()}/cgroup").read_text()
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        below = tmp_path / ("memory" if controllers else "") / path.strip("/")
        below.mkdir(parents=True, exist_ok=True)
        if controllers == "" or "memory" in controllers.split(","):
            (below / ("memory.oom_control" if controllers else "memory.events")).touch()
    found = counters(os.getpid(), str(tmp_path))
    assert found and all(Path(path).name.startswith("memory.") for path in found)
    assert counters(os.getpid(), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("top", "group", "found"),
    [
        ("/", "/system.slice/r1.service", "/memory/system.slice/r1.service"),
        # As podman and Docker mount version 1: the container's own group, at the top.
        ("/machine/c1", "/machine/c1", "/memory"),
        ("/machine/c1", "/machine/c1/little", "/memory/little"),
        ("/machine/c1", "/machine/c10", "/memory/machine/c10"),
    ],
)
def test_a_group_is_found_where_a_container_sees_it(
    tmp_path: Path, top: str, group: str, found: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"21 97 0:29 / /proc rw - proc proc rw\n22 98 0:30 {top} /memory rw - cgroup\n"
    )
    assert directory(group, "/memory", str(mounts)) == found
    assert directory(group, "/memory", str(tmp_path / "none")) == f"/memory{group}"


def test_a_log_on_a_full_disk_ends_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog = Watchdog(replace(settings, engines=(Engine("r1", (0,)),)))
    Path(settings.state_dir).mkdir()
    full = Finding("full r1 /x", "full", "r1", "", 1.0, "/x is full", "free space")
    monkeypatch.setattr(watchdog.host, "look", lambda *_: [full])
    with open("/dev/full", "wb", buffering=0) as log:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(log, write_through=True))
        say("one")
        watchdog.look()
        monkeypatch.undo()
    assert "/x is full" in (Path(settings.state_dir) / "state.json").read_text()


def finding(kind: str) -> Finding:
    return Finding(f"{kind} r1", kind, "r1", "", 0.0, f"it is {kind}", "")


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("hung", True), ("stopped", True), ("lost", True), ("full", False), ("slow", False)],
)
def test_stacks_are_taken_of_what_befalls_a_process_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: str, taken: bool
) -> None:
    monkeypatch.setattr(main, "take", lambda *_: None)
    os.makedirs(settings.state_dir)
    watchdog = Watchdog(settings)
    watchdog._keep([finding(kind)], GROUPS, time.time())
    assert bool(watchdog.known[f"{kind} r1"].get("stacks")) == taken


def test_a_full_file_system_of_the_state_itself_is_named_look_after_look(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(settings.state_dir)
    watchdog = Watchdog(settings)
    state = Path(settings.state_dir, "state.json")
    watchdog._keep([], {}, 1.0)

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_file.launcher, "write_json", no_space)
    monkeypatch.setattr(state_file.os, "posix_fallocate", no_space)
    blocks = {}
    for kinds in (["full"], ["full", "hung"], ["hung"], []):
        with state.open() as opened:
            watchdog._keep([finding(kind) for kind in kinds], {}, 2.0)
            # Who has opened it before reads what it was.
            json.load(opened)
        found = json.loads(state.read_text())
        assert [one["kind"] for one in found["findings"]] == kinds
        blocks[state.stat().st_ino] = state.stat().st_size
    assert set(blocks.values()) == {state_file.RESERVED_BYTES} and len(blocks) == 2
    monkeypatch.undo()
    watchdog._keep([finding("full")], {}, 3.0)
    assert json.loads(state.read_text())["findings"][0]["kind"] == "full"
