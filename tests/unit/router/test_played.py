"""Whatever starts servers plays their routers afterwards, in the same run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
ROLES = ("ansible.builtin.import_role", "ansible.builtin.include_role")
TASKS = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every task below a value in the order in which it is played."""
    for one in value:
        yield one
        for kind in ("tasks", "block"):
            yield from tasks(one.get(kind, []))


def kind(one: dict[str, Any]) -> str:
    """Return what a task plays of what matters here, empty for anything else."""
    role = next((one[name] for name in ROLES if name in one), {})
    if "tasks_from" not in role and role.get("name") in ("vllm", "benchmark"):
        return str(role["name"])
    return "routers" if any("routers.yml" in str(one.get(name)) for name in TASKS) else ""


ORDERS = {
    path.name: [kind(one) for one in tasks(yaml.safe_load(path.read_text())) if kind(one)]
    for path in PLAYBOOKS.rglob("*.yml")
}
STARTING = sorted(name for name, order in ORDERS.items() if "vllm" in order)


@pytest.mark.parametrize("name", STARTING)
def test_routers_follow_the_servers(name: str) -> None:
    """A sweep's points differ in their ranks: one would be measured by another's router."""
    assert ORDERS[name][:2] == ["vllm", "routers"]


def test_a_sweep_is_one_of_those_that_start_servers() -> None:
    assert {"serve.yml", "sweep_point.yml", "sweep_restore.yml"} <= set(STARTING)
