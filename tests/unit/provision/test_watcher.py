"""The limits hold with a full disk, after a kill, a reboot and the loss of what was kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.provision import clock, meter, watcher
from vllm_ansible.provision.fleet import Machine
from vllm_ansible.provision.lambda_cluster import LambdaCluster
from vllm_ansible.provision.lambda_settings import settings

from .watched import HOUR, Watched, suspended
from .world import EAST, GH200, World


def soon() -> float:
    """Return hours that are over when a watcher has begun on this machine, however busy it is."""
    began = time.monotonic()
    program = f"import sys; sys.path.insert(0, {str(watcher.SOURCE)!r}); import {meter.__name__}"
    subprocess.run([sys.executable, "-c", program], check=True)
    return 1 + (4 + 8 * (time.monotonic() - began)) / HOUR


def _until(so: Callable[[], bool], watched: Watched, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < until, watched.log
        time.sleep(0.05)


def _end(watched: Watched) -> None:
    watched.end()
    _until(lambda: not watched.processes, watched)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 256 KiB, which takes root."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("needs root to mount a file system; the limit on files shows the same")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as filler:
        for size in (4096, 1):
            try:
                while filler.write(b"x" * size):
                    pass
            except OSError:
                continue


def test_a_full_disk_keeps_the_watcher_from_nothing(world: World, small_disk: Path) -> None:
    hours, watched = soon(), Watched(world, small_disk / "state")
    watched.watch(max_hours=hours)
    _fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "more").write_text("x")
    _until(lambda: world.slots == [], watched)
    (small_disk / "filler").unlink()
    _until(lambda: not watched.processes, watched)
    # Gone with the last machine, not of a traceback.
    assert not watched.file.exists() and "Traceback" not in watched.log


def test_no_write_is_needed_to_end_the_machines(world: World) -> None:
    hours, watched = soon(), Watched(world)
    watched.watch(max_hours=hours)
    (process,) = watched.processes
    # What a quota or a full disk does to somebody who is not root: no file takes a byte more.
    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
    _until(lambda: world.slots == [], watched)
    _until(lambda: not watched.processes, watched)
    assert not watched.file.exists()
    assert "ending" not in watched.log


def test_what_was_kept_may_be_lost_while_machines_run(world: World) -> None:
    hours, watched = soon(), Watched(world)
    watched.watch(max_hours=hours)
    _until(lambda: (watched.file.parent / "lambda-ledger.json").exists(), watched)
    shutil.rmtree(watched.file.parents[1])
    _until(lambda: world.slots == [], watched)
    _until(lambda: not watched.processes, watched)


def test_a_file_that_is_deleted_alone_is_no_teardown(world: World) -> None:
    """`rm -rf state` deletes the files first, and the directory at its end."""
    hours, watched = soon(), Watched(world)
    watched.watch(max_hours=hours)
    watched.file.unlink()
    watched.file.with_suffix(".lock").unlink()
    # It is there again, and so is the lock that shows that somebody watches.
    _until(lambda: watched.file.exists() and watched.runs, watched)
    _until(lambda: world.slots == [], watched)
    _until(lambda: not watched.processes, watched)
    assert not watched.file.exists()


def test_a_look_is_a_second_apart_where_nothing_can_be_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    watched.file.parent.mkdir(parents=True)
    variables = watched.variables(max_hours=9)
    watched.file.write_text(json.dumps(variables))
    looks: list[float] = []

    def look(*_: Any) -> bool:
        looks.append(time.monotonic())
        shutil.rmtree(watched.file.parents[1], ignore_errors=True)
        # A file where the directory belongs: for root too.
        watched.file.parents[1].write_text("")
        return len(looks) < 3

    monkeypatch.setattr(meter, "look", look)
    monkeypatch.setattr(meter, "LOOK_SECONDS", 1.0)
    meter.Watch(watched.file).run()
    assert all(later - former > 0.9 for former, later in pairwise(looks))


def test_a_watcher_that_dies_at_once_is_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    monkeypatch.setattr(
        watcher, "_command", lambda _: [sys.executable, "-c", "raise SystemExit(3)"]
    )
    with pytest.raises(watcher.NoWatcher, match=r"does not live \(status 3\)"):
        watched.watch(max_hours=9)
    variables = watched.variables(max_hours=9)
    wanted = settings(variables, "here")
    told = watcher.revive(watched.file, _machines(watched), variables, wanted)
    assert "no watcher can be started: the process that watches" in told
    # One that ends well and watches nothing is none either.
    monkeypatch.setattr(watcher, "_command", lambda _: [sys.executable, "-c", ""])
    with pytest.raises(watcher.NoWatcher):
        watched.watch(max_hours=9)


def test_without_a_lock_of_its_own_one_watcher_is_enough(world: World) -> None:
    watched = Watched(world)
    # It can be opened by nobody, root neither.
    watched.file.with_suffix(".lock").mkdir(parents=True)
    try:
        assert watched.watch(max_hours=9) and watched.watch(max_hours=9)
        assert watcher.lives(watched.file)
        _until(lambda: len(watched.processes) == 1, watched)
    finally:
        _end(watched)
    assert not watcher.lives(watched.file)


def test_a_suspended_run_keeps_no_machine_past_the_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    monkeypatch.setattr(meter, "HELD_SECONDS", 2.0)
    monkeypatch.setattr(meter, "LOOK_SECONDS", 1.0)
    watched.file.parent.mkdir(parents=True)
    watched.file.write_text(json.dumps(watched.variables(max_hours=1 + 1 / HOUR)))
    watch = meter.Watch(watched.file)
    thread = threading.Thread(target=watch.run)
    with suspended(watched.file.parent / "lambda.lock"):
        thread.start()
        _until(lambda: world.slots == [], watched)
        # It may go on, and launch another one: somebody watches until it has let go.
        thread.join(3)
        assert thread.is_alive() and watched.file.exists()
    thread.join(120)
    assert not thread.is_alive() and not watched.file.exists()


def test_who_is_suspended_in_the_clock_keeps_nobody_from_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_HELD_SECONDS", 0.5)
    with suspended(tmp_path / "clock"):
        assert clock.Clock(tmp_path / "clock", {"request": 0.0}).turn("request") == 0.0


def _machines(watched: Watched) -> list[Machine]:
    wanted = settings(watched.variables(), "here")
    return LambdaCluster(wanted, watched.file.parents[1]).machines()


def test_a_watcher_that_was_killed_is_said_and_started_again(world: World) -> None:
    watched = Watched(world)
    limits: dict[str, Any] = {"max_hours": 9}
    wanted = settings(watched.variables(**limits), "here")

    def revive() -> str:
        return watcher.revive(watched.file, _machines(watched), watched.variables(**limits), wanted)

    try:
        # As in a fresh clone: limits, machines, and nobody who ever looked.
        told = revive()
        assert told.startswith("no process has watched max_hours and max_cost of r1 so far: 2")
        assert "$2.98/h; a watcher was started now. After a reboot here, the next command" in told
        assert revive() == ""
        (process,) = watched.processes
        os.kill(process, signal.SIGKILL)
        _until(lambda: not watched.runs, watched)
        assert revive().startswith("no process has watched max_hours and max_cost of r1 since 20")
        assert watched.runs and revive() == ""
    finally:
        _end(watched)


def test_a_watcher_that_is_refused_every_list_is_said_and_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose credentials have expired, or whose network is gone: the next command's work."""
    watched = Watched(world)
    monkeypatch.setattr(meter, "BLIND_SECONDS", 1.0)
    monkeypatch.setattr(meter, "LOOK_SECONDS", 1.0)
    watched.file.parent.mkdir(parents=True)
    variables = watched.variables(max_hours=9)
    watched.file.write_text(json.dumps(variables))
    refused = threading.Event()
    refused.set()
    look = meter.look

    def looked(*arguments: Any) -> bool:
        if refused.is_set():
            raise OSError("the key has expired")
        return look(*arguments)

    monkeypatch.setattr(meter, "look", looked)
    monkeypatch.setattr(meter, "say", lambda text: said.append(text))
    said: list[str] = []
    lock = meter.open_lock(watched.file)
    assert lock and meter.take(lock)
    replaced: list[bool] = []
    thread = threading.Thread(target=lambda: replaced.append(meter.Watch(watched.file, lock).run()))
    with lock:
        thread.start()
        try:
            _until(lambda: not watcher.lives(watched.file), watched)
            # It may be given lists again, and counts again then.
            refused.clear()
            _until(lambda: watcher.lives(watched.file), watched)
            refused.set()
            _until(lambda: not watcher.lives(watched.file), watched)
            wanted = settings(variables, "here")
            told = watcher.revive(watched.file, _machines(watched), variables, wanted)
            assert told.startswith("no process has watched max_hours and max_cost of r1 since 20")
            assert "a watcher was started now" in told
            thread.join(120)
            assert replaced == [True]
            assert len(watched.processes) == 1
        finally:
            refused.clear()
            _end(watched)
            thread.join(120)
    assert "no look: OSError: the key has expired" in said


def test_a_watcher_that_is_refused_every_list_ends_with_its_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teardown finds nobody who watches, and deletes it: nobody is to write it again."""
    watched = Watched(world)
    monkeypatch.setattr(meter, "BLIND_SECONDS", 0.0)
    watched.file.parent.mkdir(parents=True)
    watched.file.write_text(json.dumps(watched.variables(max_hours=9)))

    def refuse(*_: Any) -> bool:
        raise OSError("the key has expired")

    monkeypatch.setattr(meter, "look", refuse)
    lock = meter.open_lock(watched.file)
    assert lock and meter.take(lock)
    thread = threading.Thread(target=meter.Watch(watched.file, lock).run)
    with lock:
        thread.start()
        _until(lambda: not watcher.lives(watched.file), watched)
        watched.end()
        thread.join(120)
    assert not thread.is_alive() and not watched.file.exists()


def test_nothing_is_said_where_nothing_is_limited_or_rented(world: World) -> None:
    watched = Watched(world)
    variables = watched.variables()
    found = _machines(watched)
    assert watcher.revive(watched.file, found, variables, settings(variables, "here")) == ""
    limited = watched.variables(max_cost=9)
    assert watcher.revive(watched.file, [], limited, settings(limited, "here")) == ""
    assert watched.processes == []


def test_a_watcher_that_cannot_be_started_is_said_with_the_way_out(world: World) -> None:
    watched = Watched(world)
    variables = watched.variables(max_cost=9)
    found = [Machine("a", 0, "active", GH200, EAST, 149, "l", 1.0)]
    # A file where the directory belongs: for root too.
    (world.directory / "taken").write_text("")
    file = world.directory / "taken" / "r1" / "lambda-meter.json"
    told = watcher.revive(file, found, variables, settings(variables, "here"))
    assert "no watcher can be started" in told and told.endswith("teardown.yml ends them")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's systemd that is asked by name alone; the file holds what it was asked."""
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/private").touch()
    (tmp_path / "bin").mkdir()
    asked = tmp_path / "asked"
    program = tmp_path / "bin/systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return asked


def test_a_unit_stands_by_where_the_user_has_a_systemd(
    world: World, systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    name = watcher.unit(watched.file)
    unit = tmp_path / "config/systemd/user" / name
    try:
        watched.watch(max_hours=9)
        assert systemd.read_text().splitlines() == [
            "--user daemon-reload",
            f"--user enable --now --no-block {name}",
        ]
        text = unit.read_text()
        assert "Restart=on-failure" in text
        # Without file or source it could only fail, every ten seconds for ever.
        assert f"ConditionPathExists={watched.file}" in text
        assert f"ConditionPathExists={watcher.SOURCE}/vllm_ansible/provision/meter.py" in text
        monkeypatch.setattr(watcher, "LINGER", tmp_path)
        assert "loginctl enable-linger" in watcher.after_reboot(watched.file)
    finally:
        watcher.end(watched.file)
        _until(lambda: not watched.processes, watched)
    assert not unit.exists()
    assert systemd.read_text().splitlines()[2:] == [
        f"--user disable {name}",
        "--user daemon-reload",
    ]


def test_a_watcher_that_ends_leaves_no_unit(world: World, systemd: Path, tmp_path: Path) -> None:
    watched = Watched(world)
    watched.watch(max_hours=0.5)
    _until(lambda: not watched.processes, watched)
    assert world.slots == []
    assert list((tmp_path / "config/systemd/user").glob("*.service")) == []
    assert f"--user disable {watcher.unit(watched.file)}" in systemd.read_text().splitlines()


def test_the_unit_is_one_that_systemd_takes_whatever_the_path(tmp_path: Path) -> None:
    file = tmp_path / 'state of "50 %" $HOME' / "r1" / "lambda-meter.json"
    unit = tmp_path / watcher.unit(file)
    unit.write_text(watcher.unit_text(file))
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd on this machine to ask")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert unit.name not in done.stderr, done.stderr


def test_who_stands_by_takes_over_when_the_watcher_is_killed(world: World) -> None:
    watched = Watched(world)
    watched.watch(max_hours=9)
    (first,) = watched.processes
    command = [*watcher._command(watched.file), watcher.STAND_BY]
    second = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(watcher.SOURCE)})
    try:
        os.kill(first, signal.SIGKILL)
        _until(lambda: first not in watched.processes and watched.runs, watched)
        assert watched.processes == [second.pid]
    finally:
        _end(watched)
    assert second.wait(120) == 0
