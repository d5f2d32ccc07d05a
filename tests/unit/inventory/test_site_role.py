"""The role site under --limit, played for real on hosts whose look alone is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
# An action of the module's name answers in its place, as the host it was delegated to.
LOOK = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        name = self._task.delegate_to or task_vars["inventory_hostname"]
        return {"host": task_vars["hostvars"][name]["my_look"]}
"""
TWO = {"name": "a", "model": "o/m", "layout": {"pipeline": 2}, "hosts": ["n2", "n3"]}


def look(home: Path, number: int) -> dict[str, Any]:
    address = {"interface": "eth0", "address": f"10.0.0.{number}", "network": "10.0.0.0/24"}
    return {
        **{"uid": 1000, "user": "u", "home": str(home), "sudo": False, "pid1": "systemd"},
        **{"architecture": "x86_64", "distribution": "debian", "distribution_version": "12"},
        **{"python": "3.11.2", "cores": 4, "memory_bytes": 2**33, "boot_id": "b"},
        "disk_free": {"root": 2**33, "none": 2**33},
        "accelerators": {"kind": "cpu", "count": 1, "pci": [], "driver_version": ""},
        "addresses": [{**address, "kind": "physical"}],
    }


def site(
    play: Any, directory: Path, limit: str, entry: str = "main", times: int = 1, **variables: Any
) -> Any:
    """Play an entry of the role and return what each of its tasks answered."""
    (directory / "looks").mkdir()
    (directory / "looks/host_info.py").write_text(LOOK)
    hosts = {
        f"n{number}": {"my_look": look(directory / f"n{number}", number), "accelerator": "cpu"}
        for number in (1, 2, 3)
    }
    role = {"name": "site", "tasks_from": entry}
    return play(
        [{"name": "the role", "include_role": role, "vars": variables}] * times,
        hosts,
        flags=("--limit", limit),
        environment={
            "ANSIBLE_ACTION_PLUGINS": f"{directory / 'looks'}:{ROOT / 'action_plugins'}",
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        },
    )


def test_a_head_that_the_limit_leaves_out_is_addressed_as_itself(play: Any, tmp_path: Path) -> None:
    home = tmp_path / "n1/.local/share/vllm-ansible/main"
    home.mkdir(parents=True)
    played = site(play, tmp_path, "n2,n3", engines=[TWO])
    (held,) = played.tasks["site : Hold the cluster"].values()
    assert not held.get("failed"), held
    assert json.loads((home / "lock.json").read_text()) == held["lock"]
    kept = played.tasks["site : Keep what each host is"]
    assert {host: one["ansible_facts"]["site_host"]["name"] for host, one in kept.items()} == {
        "n2": "n2",
        "n3": "n3",
    }


@pytest.mark.parametrize(("state", "refused"), [("held", True), ("look", False)])
def test_a_verb_that_only_looks_may_see_a_part_of_an_engine(
    play: Any, tmp_path: Path, state: str, refused: bool
) -> None:
    (tmp_path / "n1/.local/share/vllm-ansible/main").mkdir(parents=True)
    played = site(play, tmp_path, "n3", engines=[TWO], site_lock_state=state)
    (answer,) = played.tasks["site : Refuse a limit that would split an engine"].values()
    assert bool(answer.get("failed")) is refused
    if refused:
        assert "would split engine a, which spans n2, n3: it leaves out n2" in answer["msg"]


def test_stages_without_validate_check_the_inventory_once_before_anything_is_found_out(
    play: Any, tmp_path: Path
) -> None:
    # What the first one finds out would be unknown variables to the second.
    played = site(play, tmp_path, "all", entry="stage", times=2)
    checked = played.tasks["site : Check every variable of every host"]
    assert [one.get("failed", False) for one in checked.values()] == [False], checked
    assert set(played.tasks["site : Keep what each host is"]) == {"n1", "n2", "n3"}


def test_what_keeps_nccl_on_efa_does_not_hang_on_the_limit(play: Any, tmp_path: Path) -> None:
    """Else --limit would change the environment of an engine, and so restart it."""
    efa = {"cards": 32, "libfabric": "/opt/amazon/efa/lib", "plugin": "/p/libnccl-net-ofi.so"}
    cards = {"kind": "nvidia", "count": 8, "pci": [], "driver_version": "580.1"}
    looks = {
        "n1": {**look(tmp_path, 1), "accelerators": cards, "efa": efa},
        "n2": {**look(tmp_path, 2), "accelerators": cards, "efa": efa},
        "n3": {**look(tmp_path, 3), "accelerators": cards, "efa": {**efa, "cards": 0}},
    }
    facts = {"name": "facts", "site_facts": {"looks": looks}, "run_once": True}
    network = {"data_plane_network": "10.0.0.0/24"}
    hosts = {"n1": network, "n2": {**network, "system_efa": "skip"}, "n3": network}
    whole = next(iter(play([facts], hosts).tasks["facts"].values()))["hosts"]
    assert whole["n1"]["fabric_environment"]["NCCL_NET"] == "AWS Libfabric"
    assert "fabric_environment" not in {**whole["n2"], **whole["n3"]}
    looks = {"n1": looks["n1"]}
    alone = {**facts, "site_facts": {"looks": looks}}
    part = next(iter(play([alone], hosts, flags=("--limit", "n1")).tasks["facts"].values()))
    assert part["hosts"]["n1"]["fabric_environment"] == whole["n1"]["fabric_environment"]
