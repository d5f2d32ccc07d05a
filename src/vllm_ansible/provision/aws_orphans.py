"""What a region holds and this cluster does not claim: machines, and what was made for machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .aws_api import AwsApi, named, seconds, tags_of
from .aws_machines import CLUSTER, LIVING, OWNER, cluster_of, instances, machine, slot_of
from .aws_settings import Settings
from .fleet import first
from .orphans import Orphan

HOUR = 3600.0
# What may be left of a cluster, with the name of its id, and what is asked to remove it.
LEFT = (
    ("volume", "describe_volumes", "Volumes", "VolumeId", "delete_volume"),
    ("elastic address", "describe_addresses", "Addresses", "AllocationId", "release_address"),
    (
        *("security group", "describe_security_groups", "SecurityGroups", "GroupId"),
        "delete_security_group",
    ),
    (
        *("placement group", "describe_placement_groups", "PlacementGroups", "GroupName"),
        "delete_placement_group",
    ),
    ("key pair", "describe_key_pairs", "KeyPairs", "KeyPairId", "delete_key_pair"),
)


def orphans(api: AwsApi, settings: Settings, now: Callable[[], float] = time.time) -> list[Orphan]:
    """Return machines of no slot of this cluster, and what clusters without a machine have left.

    Of machines it is all of the region, whoever runs them; of the rest, what carries our tag.
    """
    living = instances(api, [named("instance-state-name", *LIVING)])
    found = list(_machines(living, settings, now()))
    alive = {one["tags"].get(CLUSTER, "") for one in living}
    for kind, operation, key, identity, _ in LEFT:
        for one in api.all(operation, key, Filters=[named("tag-key", CLUSTER)]):
            cluster = tags_of(one).get(CLUSTER, "")
            if cluster not in alive:
                found.append(_left(kind, str(one[identity]), one, settings, now()))
    return sorted(found, key=lambda one: (one.cluster, one.kind, one.name, one.id))


def end_orphans(api: AwsApi, identities: Sequence[str]) -> set[str]:
    """End machines and remove what else a region holds, by id; return the ids of what is ending."""
    living = instances(api, [named("instance-state-name", *LIVING)])
    machines = sorted({one["id"] for one in living} & set(identities))
    ending = set(machines)
    if machines:
        api.ask("terminate_instances", InstanceIds=machines)
    for _, operation, key, identity, removal in LEFT:
        for one in api.all(operation, key, Filters=[named("tag-key", CLUSTER)]):
            if one[identity] in identities:
                api.ask(removal, **{identity: one[identity]})
                ending.add(str(one[identity]))
    return ending


def _machines(
    living: Sequence[Mapping[str, Any]], settings: Settings, now: float
) -> Iterator[Orphan]:
    slots = range(settings.count + settings.spares)
    held: set[int] = set()
    # As the cluster chooses: of two machines of a slot it keeps the first one.
    read = {one["id"]: machine(one, settings.public_address, settings.prices) for one in living}
    for one in sorted(living, key=lambda one: first(read[one["id"]])):
        why, slot = _why(one, settings.cluster, slots), slot_of(one)
        if not why and slot is not None and slot not in held:
            held.add(slot)
            continue
        own, began = one["tags"], read[one["id"]].since
        yield Orphan(
            id=one["id"],
            name=one["name"],
            status=one["status"],
            type=one["type"],
            region=one["zone"],
            cents_per_hour=settings.prices.get(one["type"], 0),
            cluster=own.get(CLUSTER, ""),
            owner=own.get(OWNER, ""),
            hours=(now - began) / HOUR if began else None,
            why=why or f"of this cluster, whose slot {slot} has a machine already",
        )


def _why(one: Mapping[str, Any], cluster: str, slots: range) -> str:
    own = one["tags"]
    if CLUSTER not in own:
        return "not rented by vllm-ansible"
    if own[CLUSTER] != cluster:
        return f"of cluster {own[CLUSTER]}, rented by {own.get(OWNER, 'somebody')}"
    if cluster_of(one) is None:
        return "of this cluster, but of no slot (none)"
    slot = slot_of(one)
    return "" if slot in slots else f"of this cluster, but of no slot ({slot})"


def _left(
    kind: str, identity: str, one: Mapping[str, Any], settings: Settings, now: float
) -> Orphan:
    own = tags_of(one)
    cluster, made = own.get(CLUSTER, ""), seconds(one.get("CreateTime"))
    whose = "this cluster" if cluster == settings.cluster else f"cluster {cluster}"
    return Orphan(
        id=identity,
        name=own.get("Name", ""),
        status=str(one.get("State") or ""),
        type=f"{kind} of {one['Size']} GiB" if kind == "volume" else kind,
        region=str(one.get("AvailabilityZone") or settings.region),
        cents_per_hour=0,
        cluster=cluster,
        owner=own.get(OWNER, ""),
        hours=(now - made) / HOUR if made else None,
        why=f"of {whose}, which has no machine",
        kind=kind,
    )
