"""Whose lock may be taken: real processes, seen from another namespace, user and /proc."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.cluster import lock

SOURCE = Path(__file__).parents[4] / "src"
LOOK = """
import json, os, sys
from vllm_ansible.node.cluster import lock
print(json.dumps(lock.over(json.loads(sys.argv[1]), lock.holder_of(os.getpid(), "bob"))))
"""

# A restart of the watchdog: it holds the cluster until it ends.
RESTARTS = """
import json, os, sys
from pathlib import Path
from vllm_ansible.node.cluster import lock
path = Path(sys.argv[1])
here = {**lock.holder_of(os.getpid(), "ada"), "restarts": True, "kept_open": True}
lock.take(path, {"run": "restart", "holder": {**here, **json.loads(sys.argv[2])}, "since": 0})
with lock.kept_open(path):
    print("held", flush=True)
    sys.stdin.read()
"""


def here() -> dict[str, Any]:
    return lock.holder_of(os.getpid(), "ada")


@pytest.fixture
def live() -> Iterator[dict[str, Any]]:
    """Give the holder of a run that lives."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield lock.holder_of(process.pid, "ada")
        process.communicate()


@pytest.fixture
def ended() -> dict[str, Any]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        found = lock.holder_of(process.pid, "ada")
        process.communicate()
    return found


def test_a_run_that_can_be_seen_is_known_to_live_or_to_be_over(
    live: dict[str, Any], ended: dict[str, Any]
) -> None:
    assert lock.over(live, here()) == (False, "")
    assert lock.over(ended, here()) == (True, "")
    # Its number was given to another process.
    assert lock.over({**live, "start_time": 1}, here()) == (True, "")


@pytest.mark.parametrize(
    ("difference", "why"),
    [
        ({"host": "bastion"}, "it is on another machine"),
        ({"boot_id": "another"}, "it is of another machine of this name, or of before a restart"),
        ({"uid": 4711}, "it is another user's, whose processes may be hidden"),
        ({"namespace": "pid:[1]"}, "it is in another namespace of process numbers"),
        ({"uid": None}, "it does not say its uid"),
        ({"namespace": ""}, "it does not say its namespace"),
    ],
)
def test_of_a_run_that_cannot_be_seen_nobody_says_that_it_is_over(
    ended: dict[str, Any], difference: dict[str, Any], why: str
) -> None:
    assert lock.over({**ended, **difference}, here()) == (False, why)


def before_a_reboot(ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the holder of a lock that this machine acquired a minute before it was booted."""
    monkeypatch.setattr(lock, "booted", lambda: 1_000.0)
    space = f"{lock.INITIAL} time:[4026531834]"
    return {
        **ended,
        "boot_id": "the last one",
        "machine": "m",
        "namespace": space,
        "acquired": 940.0,
    }


def test_a_run_of_before_the_reboot_of_this_machine_is_over(
    ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = before_a_reboot(ended, monkeypatch)
    now = {**here(), "machine": "m", "namespace": holder["namespace"]}
    assert lock.over(holder, now) == (True, "")
    # Nobody runs any more, whoever it was.
    assert lock.over({**holder, "uid": 4711}, now) == (True, "")


@pytest.mark.parametrize(
    "difference",
    [
        {"acquired": 1_060.0},  # a machine made from the same image, up at the same time
        {"acquired": None},  # of a version that did not say it
        {"machine": "another"},
        {"machine": ""},
        {"machine": None},
        {"host": "bastion"},
        {"namespace": "pid:[1]"},  # a container may have gone to another machine
        {"namespace": ""},
        {"boot_id": ""},
    ],
)
def test_a_run_that_may_be_of_another_machine_is_not_over_for_a_reboot(
    ended: dict[str, Any], difference: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = before_a_reboot(ended, monkeypatch)
    now = {**here(), "machine": "m", "namespace": holder["namespace"]}
    is_over, why = lock.over({**holder, **difference}, now)
    assert not is_over and why


def test_from_a_container_no_run_is_over_for_a_reboot(
    ended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = before_a_reboot(ended, monkeypatch)
    now = {**here(), "machine": "m", "namespace": "pid:[1]"}
    assert not lock.over(holder, now)[0]


def test_a_machine_is_known_by_its_id_and_its_network_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr(lock, "INTERFACES", tmp_path / "net")

    def card(name: str, address: str, real: bool = True) -> None:
        (tmp_path / "net" / name / ("device" if real else "none")).mkdir(parents=True)
        (tmp_path / "net" / name / "address").write_text(f"{address}\n")

    def machine() -> str:
        return str(here()["machine"])

    assert machine() == ""
    card("veth0", "02:00:00:00:00:09", real=False)
    (tmp_path / "machine-id").write_text("0123\n")
    assert machine() == ""  # a container has no card
    card("eth0", "02:00:00:00:00:01")
    first = machine()
    assert first and first == machine()
    # A copy of the image elsewhere.
    (tmp_path / "net/eth0/address").write_text("02:00:00:00:00:02\n")
    assert machine() not in ("", first)
    (tmp_path / "machine-id").write_text("")
    assert machine() == ""


def test_a_card_that_comes_while_it_runs_makes_no_other_run() -> None:
    one = here()
    assert lock.run_id("r", one, "c") == lock.run_id("r", {**one, "machine": "with a dock"}, "c")


def test_who_says_nothing_of_itself_is_not_over() -> None:
    assert lock.over({}, here()) == (False, "it does not say its host")


def asked(holder: dict[str, Any], *before: str) -> tuple[bool, str]:
    done = subprocess.run(
        [*before, sys.executable, "-c", LOOK, json.dumps(holder)],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in before:
        pytest.skip(f"no namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    is_over, why = json.loads(done.stdout)
    return is_over, why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a namespace of processes")
@pytest.mark.parametrize("proc", [("--mount-proc",), ()])
def test_a_live_run_is_not_over_from_a_container_of_this_name(
    live: dict[str, Any], proc: tuple[str, ...]
) -> None:
    unshare = shutil.which("unshare")
    assert unshare
    is_over, why = asked(live, "unshare", "--pid", "--fork", *proc)
    assert not is_over and why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide processes")
def test_a_live_run_is_not_over_where_proc_hides_it(live: dict[str, Any]) -> None:
    # root's run, another user's /proc with hidepid=2: the process is not to be seen there
    script = (
        "mount -t proc -o hidepid=2 proc /proc && "
        'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
    )
    is_over, why = asked(live, "unshare", "--mount", "/bin/sh", "-c", script, "sh")
    assert (is_over, why) == (False, "it is another user's, whose processes may be hidden")


def test_no_two_runs_have_one_name() -> None:
    one = here()
    names = {
        lock.run_id("pid-7", one, ""),
        lock.run_id("pid-7", one, "chance"),
        lock.run_id("pid-7", {**one, "boot_id": "another"}, ""),
        lock.run_id("pid-7", {**one, "namespace": "pid:[1]"}, ""),
        lock.run_id("pid-7", {**one, "start_time": 1}, ""),
    }
    assert len(names) == 5
    assert lock.run_id("pid-7", here(), "") in names  # each task of one run says the same


def test_a_stale_lock_is_taken_by_one_run_alone(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    # Two runs have seen the same dead holder; the first has taken its lock, the second looks again.
    path = tmp_path / "lock.json"
    lock.write(path, {"run": "dead", "holder": {}, "since": 0.0, "renewed": 0.0})
    args = {"cluster_dir": str(tmp_path), "dead_runs": ["dead"]}
    assert run_module("cluster_lock", {**args, "run": "first"}, [])["lock"]["run"] == "first"
    assert run_module("cluster_lock", {**args, "run": "second"}, [])["failed"]
    assert (lock.read(path) or {})["run"] == "first"


def test_who_keeps_the_directory_locked_holds_nobody_up_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)
    with lock.alone(tmp_path), lock.alone(tmp_path):
        assert launcher.alive(os.getpid(), launcher.identity(os.getpid())["start_time"])


@pytest.mark.parametrize(
    ("other", "ends"),
    [
        ({"namespace": "pid:[1] time:[2]"}, True),  # its container was restarted
        ({"namespace": "pid:[1]", "boot_id": "another"}, False),
        ({"namespace": "pid:[1]", "host": "another"}, False),
        ({"namespace": "pid:[1]", "kept_open": False}, False),  # of a release before this
    ],
)
def test_the_lock_of_a_restart_is_over_with_its_process_in_whatever_namespace(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path, other: dict[str, Any], ends: bool
) -> None:
    path = tmp_path / "lock.json"
    args = {"cluster_dir": str(tmp_path), "run": "site"}
    with subprocess.Popen(
        [sys.executable, "-c", RESTARTS, str(path), json.dumps(other)],
        env={"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        assert run_module("cluster_lock", args, [])["failed"]
        process.kill()
    answer = run_module("cluster_lock", args, [])
    assert answer.get("failed", False) is not ends
    assert (lock.read(path) or {})["run"] == ("site" if ends else "restart")
