"""Real processes under a real supervisord: what is started, found, stopped and left."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from pathlib import Path
from typing import Any

from ..conftest import Host, alive, wait_until

SLEEP = {"argv": ["/bin/sleep", "600"]}


def daemons(root: Path) -> list[int]:
    """Return the daemons of the stubborn program, once it has made them."""
    wait_until((root / "ready").exists)
    return [int((root / f"daemon{number}").read_text()) for number in range(2)]


def test_a_process_is_started_once(host: Host) -> None:
    first = host.manage(SLEEP)
    assert (first["changed"], first["action"], first["running"]) == (True, "start", True)
    assert alive(first["pid"])
    second = host.manage(SLEEP)
    assert (second["changed"], second["action"]) == (False, "none")
    same = ("pid", "instance", "digest", "log_offset")
    assert [first[key] for key in same] == [second[key] for key in same]


def test_the_process_gets_exactly_what_was_asked(host: Host) -> None:
    program = "import json, os, resource; print(json.dumps([dict(os.environ), os.getcwd(), "
    program += "resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))"
    words = ["50% $HOME", "a;b", 'qu"ote', "", "é"]
    result = host.manage(
        {
            "argv": ["/usr/bin/env", "python3", "-c", program, *words],
            "environment": {"GREETING": "50% $HOME"},
            "limits": {"nofile": "512"},
        }
    )
    log = Path(result["log"])
    said = wait_until(lambda: (text := log.read_text()).endswith("\n") and text)
    environment, directory, nofile = json.loads(said)
    assert environment["GREETING"] == "50% $HOME"
    assert "ANSIBLE_CONFIG" not in environment
    assert "PYTEST_CURRENT_TEST" not in environment
    assert directory == str(host.cluster_dir)
    assert nofile == 512
    assert host.manage(state="stopped")["digest"] == result["digest"]


def test_a_changed_process_is_restarted_only_when_allowed(host: Host) -> None:
    before = host.manage({**SLEEP, "environment": {"A": "1"}})
    wanted = {"argv": ["/bin/sleep", "601"], "environment": {"A": "2"}, "depends": {"file": "x"}}
    refused = host.manage(wanted)
    assert refused["found"] == [
        "argv: 600 -> 601",
        "environment A: 1 -> 2",
        "depends file: unset -> x",
    ]
    assert alive(before["pid"])
    after = host.manage(wanted, allow_restart=True)
    assert (after["action"], after["running"]) == ("restart", True)
    assert not alive(before["pid"])
    assert after["instance"] != before["instance"]


def test_check_mode_touches_nothing(host: Host) -> None:
    result = host.manage(SLEEP, check=True)
    assert (result["changed"], result["action"]) == (True, "start")
    assert not host.cluster_dir.exists()
    running = host.manage(SLEEP)
    result = host.manage({"argv": ["/bin/sleep", "1"]}, check=True, allow_restart=True)
    assert (result["action"], result["reason"]) == ("restart", "argv: 600 -> 1")
    assert host.manage(state="stopped", check=True)["action"] == "stop"
    assert alive(running["pid"])


def test_a_process_that_died_is_started_again(host: Host) -> None:
    first = host.manage({"argv": ["/bin/sh", "-c", "echo one; exit 3"]})
    wait_until(lambda: "exit_status" in host.state())
    look = host.processes()["e0-serve"]
    assert (look["running"], look["exit_status"]) == (False, 3)
    again = host.manage({"argv": ["/bin/sh", "-c", "echo one; exit 3"]})
    assert (again["action"], again["reason"]) == ("start", "it ended with exit status 3")
    assert first["log_offset"] == 0
    assert again["log_offset"] == len("one\n")


def test_how_a_process_ended_is_waited_for_while_its_launcher_tidies_up(host: Host) -> None:
    """On a busy host an engine that had ended with an error was said to be killed."""
    started = host.manage(SLEEP)
    launcher = host.state()["launcher"]["pid"]
    os.kill(launcher, signal.SIGSTOP)
    os.kill(started["pid"], signal.SIGTERM)
    wait_until(lambda: not alive(started["pid"]))
    goes_on = threading.Timer(0.5, os.kill, (launcher, signal.SIGCONT))
    goes_on.start()
    look = host.processes()["e0-serve"]
    goes_on.join()
    assert (look["running"], look["exit_status"]) == (False, 128 + signal.SIGTERM)


def test_a_process_that_fails_is_started_again_by_itself_where_that_is_wanted(host: Host) -> None:
    wanted = {**SLEEP, "restart": True}
    first = host.manage(wanted)
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: host.processes()["e0-serve"]["pid"] not in (None, first["pid"]))
    second = host.processes()["e0-serve"]["pid"]
    assert host.manage(wanted)["action"] == "none"
    assert host.manage(state="stopped")["running"] is False
    assert not alive(second)
    # One that it still knew it might start again.
    assert not host.programs()


def test_a_process_that_fails_ever_again_can_be_stopped(host: Host) -> None:
    ends = {"argv": ["/bin/sh", "-c", "echo one; exit 3"], "restart": True}
    log = Path(host.manage(ends)["log"])
    wait_until(lambda: log.read_text().count("one") > 2)
    # Whether it runs just now or is about to.
    host.manage(state="stopped")
    assert not host.programs()
    assert host.processes()["e0-serve"]["running"] is False


def test_stopping_leaves_no_descendant(host: Host, stubborn: dict[str, Any]) -> None:
    host.manage(stubborn)
    left = daemons(host.root)
    assert all(alive(pid) for pid in left)
    result = host.manage(state="stopped")
    assert (result["action"], result["running"]) == ("stop", False)
    assert not any(alive(pid) for pid in left)
    assert host.processes()["e0-serve"]["why"] == "it was stopped"
    assert host.manage(state="stopped")["changed"] is False


def test_a_process_that_ends_by_itself_leaves_no_descendant(host: Host) -> None:
    program = "(setsid sleep 600 & echo $! > pid); exit 0"
    host.manage({"argv": ["/bin/sh", "-c", program]})
    wait_until(lambda: "exit_status" in host.state())
    assert not alive(int((host.cluster_dir / "pid").read_text()))


def test_what_a_killed_launcher_leaves_is_found_and_ended(
    host: Host, stubborn: dict[str, Any]
) -> None:
    started = host.manage(stubborn)
    keeps_environment, lost_environment = daemons(host.root)
    os.kill(host.state()["launcher"]["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(started["pid"]))
    look = host.processes()["e0-serve"]
    assert (look["running"], look["why"]) == (False, "it was killed")
    assert keeps_environment in look["leftovers"]
    os.kill(lost_environment, signal.SIGKILL)  # this one cannot be told from a stranger
    again = host.manage(SLEEP)
    assert (again["action"], again["running"]) == ("start", True)
    assert not alive(keeps_environment)


def test_processes_outlive_their_supervisord(host: Host) -> None:
    started = host.manage(SLEEP)
    record = json.loads((host.cluster_dir / "processes/.supervisord").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_until(lambda: not alive(record["pid"]))
    assert host.manage(SLEEP)["action"] == "none"
    other = host.manage(SLEEP, name="e1-serve")
    assert other["running"]
    assert host.manage(SLEEP)["pid"] == started["pid"]
    host.manage(state="stopped")
    assert not alive(started["pid"])
    assert alive(other["pid"])


def test_a_supervisord_that_lost_its_socket_is_replaced(host: Host) -> None:
    started = host.manage(SLEEP)
    os.unlink(f"{host.run_dir}/supervisord.sock")
    assert host.manage(SLEEP, name="e1-serve")["running"]
    assert alive(started["pid"])


def test_nothing_is_left_after_the_last_process(host: Host) -> None:
    host.manage(SLEEP)
    host.manage(SLEEP, name="e0-ray")
    host.manage(state="absent")
    assert list(host.processes()) == ["e0-ray"]
    result = host.manage(state="absent", name="e0-ray")
    assert (result["changed"], result["action"]) == (True, "remove")
    assert host.everything() == []
    assert not Path(host.run_dir).exists()
    assert [path.name for path in (host.cluster_dir / "processes").iterdir()] == [".lock"]
    assert host.manage(state="absent")["changed"] is False


def test_a_program_that_is_missing_is_named(host: Host) -> None:
    result = host.manage({"argv": ["/nowhere/vllm", "serve"]})
    assert "No such file or directory" in result["error"]
    assert result["command"] == "/nowhere/vllm serve"


def test_the_name_of_another_cluster_is_refused(host: Host) -> None:
    host.manage(SLEEP)
    result = host.manage(SLEEP, cluster="other")
    assert result["found"] == "a record of cluster demo"


def test_a_run_directory_that_others_may_write_to_is_refused(host: Host) -> None:
    os.mkdir(host.run_dir, 0o777)
    os.chmod(host.run_dir, 0o777)  # noqa: S103 the test is about this
    assert "not a private directory" in host.manage(SLEEP)["error"]
    os.chmod(host.run_dir, 0o700)


def test_records_and_socket_are_private(host: Host) -> None:
    host.manage(SLEEP)
    for path in (host.cluster_dir / "processes/e0-serve.json", Path(host.run_dir)):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_large_log_is_kept_once(host: Host) -> None:
    log = host.cluster_dir / "logs/e0-serve.log"
    log.parent.mkdir(parents=True)
    with log.open("wb") as handle:
        handle.truncate(64 * 1024**2 + 1)
    assert host.manage(SLEEP)["log_offset"] == 0
    assert log.stat().st_size == 0
    assert log.with_name("e0-serve.log.1").stat().st_size == 64 * 1024**2 + 1


def test_a_limit_that_may_not_be_raised_is_told(host: Host) -> None:
    limit = "9999999999999"  # above what the kernel lets even root have
    result = host.manage({**SLEEP, "limits": {"nofile": limit}})
    assert f"{limit} was wanted" in result["warnings"][0]
