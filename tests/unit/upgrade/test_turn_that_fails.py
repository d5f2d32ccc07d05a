"""A turn that fails on one of several hosts ends with the former engine on all of them.

The plays and task files are those of playbooks/upgrade.yml, from the first turn on; the roles they
play only write down where, and with which hosts, they were played.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stubbed_roles import failing, lay_out, play, stage
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

# What each role does here: task files by role.
WRITE = {
    "ansible.builtin.debug": {
        "msg": "PLAYED {{ step }} {{ site_plan.engines[0].name }} {{ inventory_hostname }}: "
        "{{ site_hosts | map(attribute='name') | join(' ') }}",
    }
}
PLAYED = re.compile(r"PLAYED (\S+) (\S+) (\S+): ([^\"]*)\"")
DECIDED = {"plan_decision": {"differs": True}, "plan_processes": {}}
ROLES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "site": stage("{{ before }}"),
    "plan": {"decide": [{"ansible.builtin.set_fact": DECIDED}]},
    "ray": {"main": [{**WRITE, "vars": {"step": "ray"}}]},
    "vllm": {
        "main": [
            {**WRITE, "vars": {"step": "start"}},
            failing("inventory_hostname == fails or fails == 'once'", "{{ fails == 'once' }}"),
        ],
        "answer": [{**WRITE, "vars": {"step": "restored"}}],
    },
}


def plan(seqs: int) -> dict[str, Any]:
    engines = [
        {"name": name, "model": f"/models/{name}", "vllm_args": {"max_num_seqs": seqs}}
        for name in ("a", "b")
    ]
    capacities = [Capacity.whole(name, "cpu", 1, None) for name in ("n1", "n2")]
    return make_plan("c", parse_engines(engines), capacities).to_dict()


def turn(name: str) -> dict[str, Any]:
    return {"engine": name, "servers": [], "moves": False, "waits": True}


@pytest.mark.parametrize(
    ("count", "fails"),
    [
        (2, "n2"),
        pytest.param(3, "n2", marks=pytest.mark.soak),
        pytest.param(3, "once", marks=pytest.mark.soak),
    ],
)
def test_the_former_engine_comes_back_on_every_host(tmp_path: Path, count: int, fails: str) -> None:
    hosts = [f"n{number}" for number in range(1, count + 1)]
    variables = {
        "fails": fails,
        "before": plan(8),
        "upgrade_drain_seconds": 1,
        "upgrade_worst_rate": 0.9,
        "__upgrade_wanted": plan(6),
        "__upgrade_doors": [],
        "__upgrade_state": {},
        "plan_processes": {},
        "__upgrade_turns": [turn("a"), turn("b")],
    }
    first = "Upgrade one engine after the other"
    lay_out(tmp_path, "upgrade", first, ROLES, hosts, variables)
    done = play(tmp_path, "upgrade")
    said = done.stdout + done.stderr
    found = {(step, engine, name): known for step, engine, name, known in PLAYED.findall(said)}
    # Its turn began everywhere, and that of the next one nowhere.
    assert {place for place in found if place[0] == "start"} == {
        ("start", "a", name) for name in hosts
    }, said
    # On all of them, and each knows all of them.
    assert {place: known for place, known in found.items() if place[0] == "restored"} == {
        ("restored", "a", name): " ".join(hosts) for name in hosts
    }, said
    assert not (tmp_path / "out/n1/upgrade.json").exists(), said
    # What the run ends with is what failed first.
    assert done.returncode != 0
    assert "It has its former specification back and serves. What failed: " in said
    assert "check failed: it starts" in said
