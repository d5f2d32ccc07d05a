"""The machines of one cluster at RunPod, as its lists show clusters and pods.

RunPod has no tags. A cluster is found again by its name, which holds the launch; what else is to be
known of a pod lies in its environment. A slot is a rank of the cluster: where a cluster exists,
every slot has a machine, also one of which no pod is listed yet, for all of it is paid for.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from .fleet import BESIDE, BOOTING, ENDED, READY, SSH, Machine

# Names in a pod's environment.
CLUSTER, LAUNCH, SLOTS, OWNER, STATE, PART = (
    f"RENTED_{name}" for name in ("CLUSTER", "LAUNCH", "SLOTS", "OWNER", "STATE", "PART")
)
# Pods of their own beside a cluster, without accelerators, each with its slot, which is no rank:
# one fills the network volume, the other sends the load of the benchmark.
FILL, LOAD = "fill", "load"
PARTS = dict(zip((FILL, LOAD), BESIDE, strict=True))
NAME = re.compile(r"(.+)-([0-9a-f]{16})")
# The first part of a launch is of the state/ that it was made from.
STATE_LETTERS = 8
# Of no slot: pods whose cluster is gone.
LEFT_BEHIND = 1000
STATUS = {
    "PROVISIONING": BOOTING,
    "STARTING": BOOTING,
    "RUNNING": READY,
    "EXITED": "stopped",
    "ERROR": "unhealthy",
    "TERMINATED": ENDED,
}
# What a pod of one of these states costs is charged in full, whatever the list says yet.
CHARGED = ("PROVISIONING", "STARTING", "RUNNING")

# Returns the price of one accelerator, or vCPU, of a type in US dollars an hour.
Price = Callable[[str], float]


def name(cluster: str, launch: str, part: str = "") -> str:
    """Return the name of a cluster, or of a pod of its own."""
    return "-".join(one for one in (cluster, part, launch) if one)


def is_part(machine: Machine) -> bool:
    """Tell whether a machine is a pod beside the cluster."""
    return machine.slot in PARTS.values()


def launch_of(cluster: str, listed: str) -> str:
    """Return the launch that a name holds; empty where it is none of this cluster's."""
    match = NAME.fullmatch(listed)
    return match[2] if match and match[1] == cluster else ""


def machines(
    cluster: str,
    clusters: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    price: Price,
    state: str,
) -> list[Machine]:
    """Return the machines of one of our clusters; `state` is the id of this controller's state/."""
    reader = _Reader(cluster, price, state)
    living = {str(one["id"]) for one in clusters}
    found = [one for listed in clusters for one in reader.of_cluster(listed, pods)]
    for pod in pods:
        if group_of(pod) not in living and (one := reader.alone(pod)):
            found.append(one)
    return found


def group_of(pod: Mapping[str, Any]) -> str:
    """Return the id of the cluster that a pod is of; empty for a pod of its own."""
    return str((pod.get("cluster") or {}).get("id") or "")


def mine(cluster: str, pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod was launched for one of our clusters."""
    return environment(pod).get(CLUSTER) == cluster


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return what a pod says of itself."""
    return {str(key): str(value) for key, value in (pod.get("env") or {}).items()}


def kind_of(pod: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return number and catalogue name of what a pod computes with: accelerators, or vCPUs."""
    if gpu := pod.get("gpu"):
        return int(gpu.get("count") or 1), str(gpu["id"])
    if cpu := pod.get("cpu"):
        return int(cpu["vcpuCount"]), str(cpu["id"])
    return None


def shape_of(cluster: Mapping[str, Any]) -> tuple[int, str]:
    """Return number and catalogue name of the accelerators of each pod of a cluster."""
    compute = cluster.get("compute") or {}
    return int(compute.get("gpuCountPerPod") or 1), str(compute.get("gpuTypeId"))


def cost_of(pod: Mapping[str, Any], kind: tuple[int, str], price: Price) -> float:
    """Return what a pod costs in US dollars an hour: the catalogue's price until it is listed."""
    cost = float(pod.get("cost") or 0)
    if not cost and str(pod.get("status", CHARGED[0])) in CHARGED:
        cost = kind[0] * price(kind[1])
    return cost


def since(listed: Mapping[str, Any]) -> float:
    """Return when something was created, in seconds since the epoch; 0 where nobody knows."""
    try:
        return datetime.fromisoformat(str(listed["createdAt"])).timestamp()
    except (KeyError, ValueError):
        return 0.0


class _Reader:
    """What all machines of a cluster have in common."""

    def __init__(self, cluster: str, price: Price, state: str) -> None:
        self._cluster, self._price, self._state = cluster, price, state

    def of_cluster(
        self, listed: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]
    ) -> Iterator[Machine]:
        """Return a machine for each rank of a cluster that exists."""
        launch = launch_of(self._cluster, str(listed["name"]))
        if not launch:
            return
        members = [one for one in pods if group_of(one) == listed["id"]]
        known = {one["cluster"]["rank"]: one for one in members}
        unknown = [one for one in members if one["cluster"]["rank"] is None]
        tags = next((environment(one) for one in members), {})
        for rank in range(int(listed["compute"]["podCount"])):
            pod = known.get(rank) or (unknown.pop(0) if unknown else None)
            yield self._machine(
                f"{listed['id']}-{rank}", rank, launch, tags, pod, listed, str(listed["id"])
            )

    def alone(self, pod: Mapping[str, Any]) -> Machine | None:
        """Return a pod of its own, or one that its cluster has left behind."""
        tags, group = environment(pod), group_of(pod)
        launch = launch_of(self._cluster, str(pod["name"])) or tags.get(LAUNCH, "")
        if not mine(self._cluster, pod) or not launch:
            return None
        if not group and (part := tags.get(PART)):
            slot = PARTS.get(part, LEFT_BEHIND)
            return self._machine(str(pod["id"]), slot, launch, tags, pod, pod, "")
        if not group and tags.get(SLOTS, "1") == "1":
            return self._machine(str(pod["id"]), 0, launch, tags, pod, pod, "")
        rank = (pod.get("cluster") or {}).get("rank")
        identity = str(pod["id"]) if rank is None else f"{group}-{rank}"
        slot = LEFT_BEHIND + (rank or 0)
        return self._machine(identity, slot, launch, tags, pod, pod, group or str(pod["id"]))

    def _machine(
        self,
        identity: str,
        slot: int,
        launch: str,
        tags: Mapping[str, str],
        pod: Mapping[str, Any] | None,
        created: Mapping[str, Any],
        group: str,
    ) -> Machine:
        pod = pod or {}
        count, kind = kind_of(pod) or shape_of(created)
        direct = (pod.get("ssh") or {}).get("direct") or {}
        launched_here = self._state[:STATE_LETTERS] == launch[:STATE_LETTERS]
        return Machine(
            id=identity,
            slot=slot,
            status=_status(pod, slot, bool(created.get("compute"))),
            type=f"{count}x {kind}",
            region=str(pod.get("dataCenterId") or created.get("dataCenterId") or ""),
            cents_per_hour=round(100 * cost_of(pod, (count, kind), self._price)),
            launch=launch,
            since=since(created),
            address=str(direct.get("host") or ""),
            private_address=str((pod.get("cluster") or {}).get("ip") or ""),
            # Until a pod is listed, its name tells alone whose it is.
            owner=tags.get(OWNER, "" if launched_here else "somebody"),
            state=tags.get(STATE, self._state if launched_here else launch[:STATE_LETTERS]),
            port=int(direct.get("port") or 22),
            group=group,
            started=str(pod.get("startedAt") or ""),
            published=_published(pod),
        )


def _published(pod: Mapping[str, Any]) -> str:
    """Return where TCP ports beside that of SSH are published; what is no address is left out."""
    found = []
    for one in (pod.get("runtime") or {}).get("ports") or ():
        private, public, address = one.get("private"), one.get("public"), one.get("ip")
        if one.get("type") != "tcp" or private in (None, SSH) or not public:
            continue
        with suppress(ValueError):
            found.append(f"{int(private)}={ipaddress.ip_address(str(address))}:{int(public)}")
    return " ".join(sorted(found))


def _status(pod: Mapping[str, Any], slot: int, in_cluster: bool) -> str:
    """Return the state of a machine: up is one that SSH and its peers reach, and serves a slot."""
    status = STATUS.get(str(pod.get("status", CHARGED[0])), "unhealthy")
    if slot >= LEFT_BEHIND:
        # It serves nobody without its cluster, and costs until it is gone.
        return status if status == ENDED else "unhealthy"
    if in_cluster and status == ENDED:
        return "unhealthy"
    member = pod.get("cluster") or {}
    reached = (pod.get("ssh") or {}).get("direct")
    joined = not in_cluster or (member.get("ip") and member.get("rank") is not None)
    return BOOTING if status == READY and not (reached and joined) else status
