"""One engine of a plan: everything about it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm_ansible.plan.dynamo import FRONTS
from vllm_ansible.plan.engines import Probe
from vllm_ansible.plan.layout import Rank
from vllm_ansible.plan.ports import BLOCK, INTERNAL_BASE, Ports, ports_for
from vllm_ansible.plan.servers import Server, servers
from vllm_ansible.plan.sizes import Layout


def plain(engine: Any) -> dict[str, Any]:
    """Return an engine, planned or asked for, as its digest takes it.

    Where there is one data rank nothing is said of data: it was so before there were several, and
    engines that run keep their digests. Nor is anything said of the front that all had before, nor
    of the entry where an engine has its name.
    Whether the executor was written down is no part of it.
    """
    value = asdict(engine)
    value.pop("executor_given", None)
    if value["front"] == FRONTS[0]:
        del value["front"]
    if not value.get("part_of"):
        value.pop("part_of", None)
    if value["layout"] and value["layout"]["data"] == 1:
        del value["layout"]["data"]
    return value


@dataclass(frozen=True)
class PlannedEngine:
    """One engine with nothing left to decide."""

    name: str
    index: int
    model: str
    served_name: str
    model_source: str
    executor: str
    role: str
    layout: Layout
    hosts: tuple[str, ...]
    ranks: tuple[Rank, ...]
    ports: Ports
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    probe: Probe
    request: str
    reasons: tuple[str, ...]
    # What the planner expects of it, by stage and rank; empty where nothing was known.
    estimate: Mapping[str, Any] = field(default_factory=dict)
    # What stands before its data ranks.
    front: str = FRONTS[0]
    # The entry of the inventory, where `layout: auto` of one entry became several engines.
    part_of: str = ""

    @property
    def entry(self) -> str:
        """Return the name of its entry in the inventory."""
        return self.part_of or self.name

    def devices(self, host: str) -> tuple[int, ...]:
        """Return the devices this engine has on a host."""
        return tuple(rank.device for rank in self.ranks if rank.host == host)

    def servers(self) -> tuple[Server, ...]:
        """Return its servers: one, or one for each data rank."""
        return servers(asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plan.json holds it."""
        return plain(self)

    def ray_processes(self) -> bool:
        """Tell whether this engine runs on a Ray cluster."""
        return self.executor == "ray"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> PlannedEngine:
        """Return one engine of plan.json as it was before it was written."""
        base = int(value["ports"].get("gcs", INTERNAL_BASE)) - BLOCK * value["index"]
        return cls(
            **{
                **value,
                "layout": Layout(**value["layout"]),
                "hosts": tuple(value["hosts"]),
                "ranks": tuple(Rank(**rank) for rank in value["ranks"]),
                # A plan of an earlier release may lack a port; its engine keeps those it has.
                "ports": Ports(
                    **{**asdict(ports_for(value["index"], base=base)), **value["ports"]}
                ),
                "arguments": tuple(value["arguments"]),
                "probe": Probe(**value["probe"]),
                "reasons": tuple(value["reasons"]),
            }
        )
