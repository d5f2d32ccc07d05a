"""Teardown ends rented machines only where no other run works on them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.cluster import lock

from .rental import ROOT, Site, machines
from .watched import suspended
from .world import EAST, GH200

END = {
    "name": "teardown",
    "ansible.builtin.include_role": {
        "name": str(ROOT / "roles/provision"),
        "tasks_from": "end",
    },
}


@pytest.fixture
def head(site: Site) -> Path:
    """Rent a machine from elsewhere; the cluster's head is this machine, with its own directory."""
    directory = site.directory / "cluster"
    directory.mkdir()
    tags = {"cluster": "r1", "slot": "0", "owner": "bob@elsewhere", "since": "1700000000"}
    site.cloud.account.launch(
        {
            "region_name": EAST,
            "instance_type_name": GH200,
            "ssh_key_names": ["mine"],
            "name": "r1-0",
            "tags": [{"key": f"vllm-ansible:{key}", "value": tags[key]} for key in tags],
        }
    )
    return directory


def teardown(site: Site, head: Path) -> dict[str, dict[str, Any]]:
    """Play what teardown.yml plays of rented machines; return the results by task."""
    more = {"provision_machine": {"id": "a"}, "cluster_dir": str(head), "privileges": "none"}
    played = site(END, **more).tasks
    return {name.rpartition(" : ")[2]: hosts["here"] for name, hosts in played.items()}


def held(directory: Path, **holder: Any) -> None:
    who = {"user": "ann", "host": "elsewhere", "pid": 7, **holder}
    now = time.time()
    lock.write(
        directory / "lock.json", {"run": "another", "holder": who, "since": now, "renewed": now}
    )


def test_no_machine_is_ended_while_another_run_works_on_the_cluster(site: Site, head: Path) -> None:
    held(head)
    tasks = teardown(site, head)
    refused = tasks["Hold the cluster"]
    assert refused["failed"]
    assert "another run holds this cluster: another by ann@elsewhere (process 7)" in refused["msg"]
    assert refused["fix"].endswith("-e break_lock=true")
    assert "End the machines" not in tasks
    # The lock is still the other run's.
    assert (lock.read(head / "lock.json") or {})["run"] == "another"


def test_the_cluster_is_held_while_machines_end_and_released_where_some_are_left(
    site: Site, head: Path
) -> None:
    # A run of before this machine's reboot has left its lock: nobody needs break_lock for it.
    before = {**lock.holder_of(1, "ann"), "boot_id": "before", "acquired": lock.booted() - 60}
    if before["machine"] and before["namespace"].startswith(lock.INITIAL):
        held(head, **before)
    tasks = teardown(site, head)
    assert [name for name in tasks if "skipped" not in tasks[name]] == [
        "teardown",
        "Hold the cluster where it can be reached",
        "Hold the cluster",
        "End the machines",
        "Release the cluster where machines are left",
        "Let another run have the machines",
    ]
    assert tasks["Hold the cluster"]["lock"]["run"] != "another"
    assert "were rented by bob@elsewhere" in tasks["End the machines"]["msg"]
    assert not (head / "lock.json").exists()


def test_a_head_that_can_keep_no_lock_keeps_no_machine_from_being_ended(
    site: Site, head: Path
) -> None:
    (head / "file").write_text("")
    tasks = teardown(site, head / "file")
    assert "cannot hold this cluster" in tasks["Hold the cluster"]["msg"]
    assert "were rented by bob@elsewhere" in tasks["End the machines"]["msg"]


def test_a_renter_that_hangs_is_named_and_not_waited_for_for_ever(site: Site) -> None:
    # Two minutes of a user's are half a second of this test's.
    action = site.directory / "action_plugins/rented_machines.py"
    text = action.read_text()
    assert "\nHELD_SECONDS = 120.0\n" in text
    action.write_text(text.replace("\nHELD_SECONDS = 120.0\n", "\nHELD_SECONDS = 0.5\n"))
    with suspended(site.directory / "state/r1/lambda.lock") as process:
        told = site(machines("end", state="absent"))["end"]
    assert told["failed"]
    assert told["msg"].startswith(f"process {process} rents for this cluster and has not stopped")
    assert f"`kill -KILL {process}`" in told["fix"]
    assert site.cloud.writes == []
