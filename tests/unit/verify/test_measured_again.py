"""The role `collectives` measures a second time before a low rate fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, Playbook

DATA = json.loads((ROOT / "tests/data/collectives/h200-ranks-one-host.json").read_text())
# In place of the ranks: what each of two measurements finds, in order.
MEASURES = """\
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        wanted = self._task.args
        path = wanted["tasks_dir"] + "/measured"
        with open(path, "a+") as file:
            file.seek(0)
            number = len(file.read())
            file.write("x")
        rates = task_vars["rates"]
        found = task_vars["healthy"]
        found["inside"]["gh-01"]["all_reduce"]["busbw"] = rates[min(number, len(rates) - 1)]
        return {"changed": False, "result": found}
"""
NOTHING = """\
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return {"changed": False}
"""


@pytest.mark.parametrize(
    ("rates", "measurements", "fails"),
    [([336.7], 1, False), ([217.4, 324.0], 2, False), ([217.4, 217.0], 2, True)],
)
def test_a_low_rate_is_measured_again(
    play: Playbook, tmp_path: Path, rates: list[float], measurements: int, fails: bool
) -> None:
    actions = tmp_path / "stand-ins"
    actions.mkdir()
    for name, text in (
        ("collective_check", NOTHING),
        ("collective_ranks", NOTHING),
        ("background_wait", MEASURES),
    ):
        (actions / f"{name}.py").write_text(text)
    (tmp_path / "tasks").mkdir()
    site: dict[str, Any] = {
        "cluster_dir": str(tmp_path),
        "name": "gh-01",
        "address": "127.0.0.1",
        "interface": "ens1",
        "accelerator": "nvidia",
        "accelerator_name": "NVIDIA H200",
        "accelerator_count": 4,
        "privileges": "none",
    }
    variables = {
        **{"rates": rates, "healthy": DATA, "site_host": site, "site_hosts": [site]},
        **{"collectives_used": "nccl", "collectives_ranks": 4, "collectives_hosts": {"gh-01": 4}},
        **{"collectives_ports": {"coordinator": 1, "store": 2}, "collectives_key_file": "/none"},
        **{"collectives_program": "none", "collectives_rank_environment": {}},
        **{"verification_kept": {}, "verify_accept": [], "accelerators": {}, "engines": []},
        **{"environment_installed": {"python": "none"}, "collectives_join_seconds": 1},
        **{"collectives_size": 0, "collectives_seconds": 0.1, "collectives_iterations": 1},
        **{"collectives_silence_seconds": 1, "collectives_pause_seconds": 1},
    }
    played = play(
        [{"include_tasks": str(ROOT / "roles/collectives/tasks/main.yml")}],
        {"gh-01": variables},
        environment={"ANSIBLE_ACTION_PLUGINS": f"{actions}:{ROOT / 'action_plugins'}"},
    )
    assert len((tmp_path / "tasks/measured").read_text()) == measurements
    first = played["Judge what links rank and rank"]
    assert not first.get("failed") and first["again"] is (measurements == 2)
    if measurements == 2:
        last = played["Judge both measurements"]
        assert last.get("failed", False) is fails
        (row,) = [row for row in last["rows"] if row["check"] == "bandwidth"]
        assert row["found"] == (
            f"{rates[1]} GB/s of bus bandwidth; the first measurement: 217.4 GB/s of bus bandwidth"
        )
