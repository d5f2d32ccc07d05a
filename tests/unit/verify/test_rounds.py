"""Waits for all hosts hold where Ansible has fewer forks than hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def of_task(value: Any, name: str) -> str:
    """Return what a file of tasks says of an argument, wherever it stands."""
    if isinstance(value, dict) and isinstance(value.get(name), str):
        return str(value[name])
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in parts if (found := of_task(one, name))), "")


@pytest.mark.parametrize(
    ("forks", "rounds"),
    [("1", 3), ("2", 2), ("64", 1)],
)
def test_a_wait_for_all_hosts_grows_with_the_rounds_it_takes(
    play: Any, forks: str, rounds: int
) -> None:
    waits = {
        "reach_life_seconds": ("roles/reach/tasks/main.yml", "life_seconds"),
        "weights_relay_idle_seconds": ("roles/weights/tasks/begin.yml", "idle_seconds"),
        "environment_image_idle_seconds": (
            "roles/environment/tasks/spread_image.yml",
            "idle_seconds",
        ),
        "collectives_join_seconds": ("roles/collectives/tasks/measure.yml", "join_seconds"),
    }
    said = {
        variable: of_task(yaml.safe_load((ROOT / path).read_text()), argument)
        for variable, (path, argument) in waits.items()
    }
    hosts = {name: dict.fromkeys(waits, 120) for name in "abc"}
    task = {"name": "waits", "ansible.builtin.set_fact": {f"got_{k}": v for k, v in said.items()}}
    found = play([task], hosts, flags=("--forks", forks)).tasks["waits"]["a"]["ansible_facts"]
    assert {float(one) for one in found.values()} == {120.0 * rounds}
