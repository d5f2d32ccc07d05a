"""The inventory for four machines of eight S60, as it is shipped, and the plan that it makes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.plan.servers import servers

ROOT = Path(__file__).parents[3]
INVENTORY = ROOT / "inventories/enflame"


def validated(directory: Path, *arguments: str) -> tuple[int, str]:
    done = warm.play(
        ["-i", INVENTORY, "playbooks/validate.yml", *arguments],
        cwd=ROOT,
        env={**os.environ, "VLLM_ANSIBLE_RUNS_DIR": str(directory)},
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.plays
def test_all_that_is_missing_is_the_checksum_of_an_image(tmp_path: Path) -> None:
    status, said = validated(tmp_path)
    assert status != 0
    assert "engine_image_file needs engine_image_sha256" in said
    digest = hashlib.sha256(b"an image").hexdigest()
    status, said = validated(tmp_path, "-e", f"engine_image_sha256={digest}")
    assert status == 0, said
    assert "r1: 1 engine on 4 hosts" in said


def test_eight_ranks_of_four_devices_are_two_on_each_machine() -> None:
    told: dict[str, Any] = yaml.safe_load((INVENTORY / "group_vars/all.yml").read_text())
    hosts = yaml.safe_load((INVENTORY / "hosts.yml").read_text())["all"]["children"]["gpu"]["hosts"]
    device = accelerator(told["accelerator_model"])
    capacities = [
        Capacity.whole(host, told["accelerator"], told["accelerator_count"], device)
        for host in hosts
    ]
    (engine,) = make_plan(told["cluster_name"], parse_engines(told["engines"]), capacities).engines
    assert engine.executor == "dp"
    found = [(one.host, tuple(one.devices)) for one in servers(engine.to_dict())]
    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found == [(host, half) for host in hosts for half in halves]
