"""What may be said of an engine whose data-parallel ranks are servers of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_ansible.accelerators.platform import device_variables
from vllm_ansible.plan.ports import WORKERS
from vllm_ansible.plan.sizes import Layout

EXECUTOR = "dp"
# The plan gives each rank its own: one value for all would lay them on the same devices.
EACH_RANK = (*device_variables(), "VLLM_DP_")


def refusals(
    item: Mapping[str, Any], layout: Layout | None
) -> Iterator[tuple[str, str, object, str]]:
    """Yield key, what was expected, what was found and the fix of each contradiction."""
    executor, data = item.get("executor"), layout.data if layout else 1
    if data > WORKERS:
        yield (
            "layout",
            f"at most {WORKERS} data ranks, each with a port of the engine's block",
            item.get("layout"),
            "make tensor larger and data smaller, or write a second engine",
        )
    if layout and data > 1 and layout.pipeline > 1:
        yield (
            "layout",
            "no pipeline beside data: a data rank lies within one host",
            item.get("layout"),
            "write {data: N, tensor: M}",
        )
    if data > 1 and executor not in (None, EXECUTOR):
        yield (
            "executor",
            f"{EXECUTOR}, or none, for a layout with data",
            executor,
            f"write executor: {EXECUTOR}, or remove it",
        )
    if executor != EXECUTOR and data == 1:
        return
    if layout and data == 1:
        yield (
            "layout",
            f"{{data: N, tensor: M}} with N at least 2 for executor {EXECUTOR}",
            item.get("layout"),
            f"write how many ranks there are, or leave out executor: {EXECUTOR}",
        )
    given = item.get("environment")
    for name in given if isinstance(given, Mapping) else ():
        if str(name).startswith(EACH_RANK):
            yield (
                "environment",
                "no variable that the plan gives each rank its own value of",
                name,
                "remove it: devices and ranks come from layout and hosts",
            )
