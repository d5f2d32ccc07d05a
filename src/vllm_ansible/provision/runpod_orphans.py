"""What an account at RunPod pays for and this cluster does not claim, with its price.

Clusters, pods of their own, pods whose cluster is gone, and network volumes that no pod has. What a
volume costs no list tells: it is taken from yesterday's bill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from . import runpod_pods as listed
from .fleet import GONE, READY, Machine
from .orphans import Orphan
from .runpod_lists import Lists
from .runpod_pods import (
    CLUSTER,
    FILL,
    LEFT_BEHIND,
    LOAD,
    OWNER,
    PART,
    PARTS,
    environment,
    group_of,
    is_part,
    kind_of,
)
from .runpod_settings import Settings

HOUR, HOURS_OF_A_DAY = 3600.0, 24
# Why a pod beside the cluster is paid for and not claimed.
WHY = {
    FILL: "of this cluster, to fill its network volume: site.yml continues that and ends it",
    LOAD: "of this cluster, to send its load, and runpod_load is false or there is another one",
}

UNFINISHED = (
    "of this cluster, to fill its network volume, and runpod_fill is false: no stage continues that"
)


def orphans(
    lists: Lists,
    volumes: Sequence[Mapping[str, Any]],
    bills: Sequence[Mapping[str, Any]],
    settings: Settings,
    now: Callable[[], float] = time.time,
) -> list[Orphan]:
    """Return every cluster, pod and volume that is none of this cluster's."""
    # As slots take machines: of two clusters that were launched for one, the first that is up.
    machines = [one for one in lists.machines() if one.status not in GONE]
    claimed = [one for one in machines if one.slot < LEFT_BEHIND and not is_part(one)]
    loads = [one for one in machines if one.slot == PARTS[LOAD] and settings.load]
    own = {_first(claimed), _first(loads)}
    found = [*_clusters(lists, own, settings.cluster, now()), *_pods(lists, own, settings, now())]
    return [*found, *_volumes(lists.pods, volumes, bills, settings)]


def _first(machines: Sequence[Machine]) -> str:
    """Return the id of what has a slot; empty where nothing has."""
    first = min(machines, key=lambda one: (one.status != READY, one.since), default=None)
    return (first.group or first.id) if first else ""


def _clusters(lists: Lists, own: Collection[str], cluster: str, now: float) -> Iterator[Orphan]:
    for one in lists.clusters:
        members = [pod for pod in lists.pods if group_of(pod) == one["id"]]
        if one["id"] in own:
            continue
        tags = next((environment(pod) for pod in members), {})
        why = _whose(tags)
        if listed.launch_of(cluster, str(one["name"])):
            why = "of this cluster, which has another one already"
        shape = one["compute"]
        yield Orphan(
            id=str(one["id"]),
            name=str(one["name"]),
            status=", ".join(f"{n} {word}" for word, n in one["pods"]["byStatus"].items()),
            type=f"{shape['podCount']} pods of {shape['gpuCountPerPod']}x {shape['gpuTypeId']}",
            region=str(one.get("dataCenterId") or "no data center yet"),
            cents_per_hour=round(100 * lists.cluster_cost(one)),
            cluster=tags.get(CLUSTER, ""),
            owner=tags.get(OWNER, ""),
            hours=(now - listed.since(one)) / HOUR,
            why=why,
        )


def _pods(lists: Lists, own: Collection[str], settings: Settings, now: float) -> Iterator[Orphan]:
    living = {str(one["id"]) for one in lists.clusters}
    for pod in lists.pods:
        group = group_of(pod)
        if group in living or pod["id"] in own or pod["status"] == "TERMINATED":
            continue
        tags = environment(pod)
        why = f"its cluster {group} is gone" if group else _whose(tags)
        if not group and tags.get(CLUSTER) == settings.cluster:
            why = WHY.get(tags.get(PART, ""), "of this cluster, which has another pod already")
            if tags.get(PART) == FILL and not settings.fill:
                why = UNFINISHED
        count, kind = kind_of(pod) or (0, "")
        yield Orphan(
            id=str(pod["id"]),
            name=str(pod["name"]),
            status=str(pod["status"]),
            type=f"{count}x {kind}" if kind else "a pod without accelerators",
            region=str(pod.get("dataCenterId") or "no data center yet"),
            cents_per_hour=round(100 * lists.cost(pod)),
            cluster=tags.get(CLUSTER, ""),
            owner=tags.get(OWNER, ""),
            hours=(now - listed.since(pod)) / HOUR,
            why=why,
        )


def _volumes(
    pods: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]],
    bills: Sequence[Mapping[str, Any]],
    settings: Settings,
) -> Iterator[Orphan]:
    mounted = {
        str(one["volumeId"]) for pod in pods for one in (pod.get("mounts") or {}).get("network", ())
    }
    # Today's day is not over yet.
    yesterday = min((str(one["startTime"]) for one in bills), default="")
    prices = {
        str(one["networkVolumeId"]): float(one["totalAmount"]) / HOURS_OF_A_DAY
        for one in bills
        if str(one["startTime"]) == yesterday
    }
    for one in volumes:
        identity = str(one["id"])
        if identity in mounted or one["name"] == settings.volume:
            continue
        unknown = "" if identity in prices else ", its price on no bill yet"
        yield Orphan(
            id=identity,
            name=str(one["name"]),
            status="not mounted",
            type=f"{one['size']} GB of network volume",
            region=str(one["dataCenter"]),
            cents_per_hour=round(100 * prices.get(identity, 0)),
            why=f"mounted by no pod, and ended with all that is in it{unknown}",
            kind="volume",
        )


def _whose(tags: Mapping[str, str]) -> str:
    if CLUSTER not in tags:
        return "not rented by vllm-ansible"
    return f"of cluster {tags[CLUSTER]}, rented by {tags.get(OWNER, 'somebody')}"
