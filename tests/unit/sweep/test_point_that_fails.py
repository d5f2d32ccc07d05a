"""A point that fails on one of several hosts: all of them measure the next one, and go back.

The plays and task files are those of playbooks/sweep.yml, from the first point on, with the role
that keeps points; the other roles only write down where, and with which hosts, they were played.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stubbed_roles import ROOT, failing, lay_out, play, stage
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

LOAD = {"requests": 4, "input_tokens": 64, "output_tokens": 32}
WRITE = {
    "ansible.builtin.debug": {
        "msg": "PLAYED {{ step }} {{ site_plan.seqs }} {{ inventory_hostname }}: "
        "{{ site_hosts | map(attribute='name') | join(' ') }}",
    }
}
PLAYED = re.compile(r"PLAYED (\S+) (\S+) (\S+): ([^\"]*)\"")
# What the stage benchmark keeps of a point.
KEPT = {
    "ansible.builtin.copy": {
        "content": "{{ {'figures': {'output_tokens_per_second': 31.5, "
        + ", ".join(
            f"'{one}': benchmark_{one} | int"
            for one in ("requests", "concurrency", "input_tokens", "output_tokens")
        )
        + "}} | to_json }}",
        "dest": "{{ site_host.cluster_dir }}/evidence/benchmark-chat.json",
        "mode": "0644",
    },
    "when": "inventory_hostname == 'n1'",
}
MADE = {"plan_made": "{{ plans[engines[0].vllm_args.max_num_seqs | string] }}"}
ROLES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "site": stage("{{ before }}"),
    "plan": {"main": [{"ansible.builtin.set_fact": MADE}]},
    "ray": {"main": [{**WRITE, "vars": {"step": "ray"}}]},
    "vllm": {
        "main": [
            {**WRITE, "vars": {"step": "start"}},
            failing(
                "site_plan.seqs in fails and (once or inventory_hostname == 'n2')", "{{ once }}"
            ),
        ]
    },
    "benchmark": {"main": [{**WRITE, "vars": {"step": "measured"}}, KEPT]},
}


def engines(seqs: int) -> list[dict[str, Any]]:
    arguments = {"max_num_seqs": seqs, "max_num_batched_tokens": 64}
    return [{"name": "chat", "model": "/models/chat", "vllm_args": arguments}]


def plan(seqs: int) -> dict[str, Any]:
    hosts = [Capacity.whole(name, "cpu", 1, None) for name in ("n1", "n2")]
    return {**make_plan("c", parse_engines(engines(seqs)), hosts).to_dict(), "seqs": seqs}


def point(seqs: int) -> dict[str, Any]:
    return {
        "name": f"{seqs} x 64",
        "point": {"max_num_seqs": seqs, "max_num_batched_tokens": 64},
        "engines": engines(seqs),
        "load": {**LOAD, "concurrency": seqs},
    }


@pytest.mark.parametrize(
    ("count", "asked", "fails", "once"),
    [
        (2, [4, 8], [4], False),
        pytest.param(3, [4, 8, 16], [4, 8], False, marks=pytest.mark.soak),
        pytest.param(3, [4, 8, 16], [4], True, marks=pytest.mark.soak),
        pytest.param(1, [4, 8, 16], [4, 8], True, marks=pytest.mark.soak),
    ],
)
def test_the_points_after_it_are_measured_and_the_engine_goes_back_on_every_host(
    tmp_path: Path, count: int, asked: list[int], fails: list[int], once: bool
) -> None:
    hosts = [f"n{number}" for number in range(1, count + 1)]
    before = plan(2)
    document = {"version": 1, "engine": "chat", "fingerprint": "f", "before": before, "points": []}
    variables = {
        "fails": fails,
        "once": once,
        "engines": engines(2),
        "plans": {str(seqs): plan(seqs) for seqs in (2, *asked)},
        "before": before,
        "plan_processes": {},
        "sweep_planned": before["engines"][0],
        "sweep_left": [point(seqs) for seqs in asked],
        "sweep_document": document,
        "sweep_restores": True,
    }
    first = "Measure one point after the other"
    out = lay_out(tmp_path, "sweep", first, ROLES, hosts, variables)
    shutil.copytree(ROOT / "roles/sweep", tmp_path / "roles/sweep")
    done = play(tmp_path, "sweep")
    said = done.stdout + done.stderr
    found: dict[tuple[str, str], dict[str, str]] = {}
    for step, seqs, name, known in PLAYED.findall(said):
        found.setdefault((step, seqs), {})[name] = known
    everywhere = dict.fromkeys(hosts, " ".join(hosts))
    # Each point on all of them, and each knows all of them; then what was before.
    assert found == {
        **{("ray", str(seqs)): everywhere for seqs in (*asked, 2)},
        **{("start", str(seqs)): everywhere for seqs in (*asked, 2)},
        **{("measured", str(seqs)): everywhere for seqs in asked if seqs not in fails},
    }, said
    kept = json.loads((out / "n1/evidence/sweep-chat.json").read_text())
    assert [(one["max_num_seqs"], one["ok"]) for one in kept["points"]] == [
        (seqs, seqs not in fails) for seqs in asked
    ]
    assert all(
        one["failure"]["msg"] == f"{one['failure']['host']}: check failed: it starts"
        for one in kept["points"]
        if not one["ok"]
    ), kept
    assert kept["before"] == {}
    assert json.loads((out / "n1/plan.json").read_text())["seqs"] == 2
    assert done.returncode == 0, said
