"""A cluster's directory on the controller belongs to one inventory, whoever chose its name too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.inventory.state_owner import FILE, claim, other_owner

OWN: dict[str, dict[str, Any]] = {"gpu1": {"ansible_host": "192.0.2.11"}, "gpu2": {}}
LAMBDA = {"r1-0": {"provision_provider": "lambda", "ansible_host": "192.0.2.11"}}
SLURM = {"r1-0": {"provision_provider": "slurm"}}
OTHERS = {"gcu1": {"ansible_host": "198.51.100.1"}}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    place = tmp_path / "r1"
    place.mkdir(mode=0o700)
    return place


def test_what_nobody_has_claimed_is_anybodys(state: Path) -> None:
    assert other_owner(state, OWN) == []
    assert other_owner(state.parent / "none", LAMBDA) == []
    (state / "api_key").write_text("k")
    (state / FILE).write_text("{")
    assert other_owner(state, OWN) == []


@pytest.mark.parametrize("hosts", [OWN, LAMBDA, SLURM], ids=["own", "lambda", "slurm"])
def test_its_inventory_finds_it_again_whatever_becomes_of_its_hosts(
    state: Path, hosts: dict[str, Any]
) -> None:
    claim(state, hosts)
    assert (state / FILE).stat().st_mode & 0o777 == 0o600
    assert [one.name for one in state.iterdir()] == [FILE]
    assert other_owner(state, hosts) == []
    name, variables = next(iter(hosts.items()))
    # Grown, renamed or moved: some of it is as it was.
    assert other_owner(state, {name: variables, "new": {}}) == []
    renamed = {"other": {"ansible_host": name, **variables}}
    assert other_owner(state, renamed) == []


@pytest.mark.parametrize(
    ("kept", "hosts", "found"),
    [
        (LAMBDA, OWN, "machines at Lambda"),
        (SLURM, LAMBDA, "nodes of Slurm"),
        (OWN, SLURM, "hosts of its own: 192.0.2.11, gpu1, gpu2"),
        (OWN, OTHERS, "hosts of its own: 192.0.2.11, gpu1, gpu2"),
    ],
)
def test_another_inventory_is_refused(
    state: Path, kept: dict[str, Any], hosts: dict[str, Any], found: str
) -> None:
    claim(state, kept)
    (problem,) = other_owner(state, hosts)
    assert problem.found == found and problem.where == str(state)
    assert problem.fix.startswith("choose another cluster_name")
