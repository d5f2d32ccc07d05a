"""The machines of a cluster at AWS as EC2 lists them: kept plain, read from their tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .aws_api import AwsApi, AwsError, named, seconds, tags_of
from .fleet import BOOTING, ENDED, ENDING, GONE, READY, Machine

# Tags of all that belongs to a cluster.
CLUSTER, SLOT, SLOTS, LAUNCH, SINCE, OWNER, STATE = (
    f"vllm-ansible:{name}"
    for name in ("cluster", "slot", "slots", "launch", "since", "owner", "state")
)
STATES = {
    "pending": BOOTING,
    "running": READY,
    "shutting-down": ENDING,
    "terminated": ENDED,
    "stopping": "stopped",
    "stopped": "stopped",
}
LIVING = ("pending", "running", "stopping", "stopped")
# States of a spot request whose machine goes within two minutes (EC2's user guide, "Spot request
# status codes").
INTERRUPTED = frozenset({"marked-for-termination", "marked-for-stop"})
# Machines of a capacity block are ended from so long before its end on (EC2's user guide, "Work
# with Capacity Blocks").
BLOCK_SECONDS = 1800.0
# Ends of a machine that are no fault of how it was launched (EC2's API reference, StateReason).
ORDINARY = frozenset(
    {
        "Client.UserInitiatedShutdown",
        "Client.InstanceInitiatedShutdown",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
# What is said of a machine that AWS ended by itself.
LOST = {"Server.SpotInstanceTermination": "interrupted by AWS, as spot machines are"}
BLOCK_OVER = "ended by AWS with its capacity block"
# What a machine's end is called that was asked for.
CLIENT = "Client."
# What of a machine is kept between commands: nothing of it is secret.
KEPT = (
    *("id", "type", "zone", "status", "address", "public_address", "index", "tags", "launched"),
    *("name", "why", "words", "ends_at"),
)


def instances(api: AwsApi, filters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return machines as EC2 lists them, with what it says of their health beside."""
    reservations = api.all("describe_instances", "Reservations", Filters=list(filters))
    found = [plain(one) for each in reservations for one in each["Instances"]]
    impaired, interrupted = _impaired(api, found), _interrupted(api, found)
    for one in found:
        if one["id"] in impaired and one["status"] == READY:
            one["status"] = "unhealthy"
        if one["id"] in interrupted and one["status"] in (READY, BOOTING):
            one["status"] = "preempted"
    return found


def plain(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what matters of a machine, in types that JSON has."""
    own = tags_of(listed)
    return {
        "id": str(listed["InstanceId"]),
        "type": str(listed["InstanceType"]),
        "zone": str(listed.get("Placement", {}).get("AvailabilityZone", "")),
        "status": STATES.get(str(listed["State"]["Name"]), str(listed["State"]["Name"])),
        "address": str(listed.get("PrivateIpAddress") or ""),
        "public_address": str(listed.get("PublicIpAddress") or ""),
        "index": int(listed.get("AmiLaunchIndex") or 0),
        "tags": own,
        "launched": seconds(listed.get("LaunchTime")),
        "name": own.get("Name", ""),
        "why": str((listed.get("StateReason") or {}).get("Code") or ""),
        "words": str((listed.get("StateReason") or {}).get("Message") or ""),
        "interface": _first_interface(listed.get("NetworkInterfaces", ())),
        "spot": str(listed.get("SpotInstanceRequestId") or ""),
    }


def cluster_of(listed: Mapping[str, Any]) -> str | None:
    """Return the cluster that a listed machine belongs to, None for one that is not ours."""
    own = listed["tags"]
    return own.get(CLUSTER) if slot_of(listed) is not None else None


def slot_of(listed: Mapping[str, Any]) -> int | None:
    """Return the slot of a machine of ours.

    All machines of one launch have the same tags: the slots of all of them, of which each has the
    one at its own index in the launch. A tag of its own says so once it was moved.
    """
    own = listed["tags"]
    slots = own.get(SLOTS, "").split(",")
    index = listed["index"]
    text = own.get(SLOT) or (slots[index] if index < len(slots) else "")
    return int(text) if text.isdecimal() else None


def machine(listed: Mapping[str, Any], public: bool, prices: Mapping[str, int]) -> Machine:
    """Return a listed machine of ours; `public` says by which of its addresses it is reached."""
    own, status = listed["tags"], str(listed["status"])
    address = listed["public_address"] if public else listed["address"]
    since = own.get(SINCE, "")
    return Machine(
        id=listed["id"],
        slot=slot_of(listed) or 0,
        # Up without an address is up for nobody.
        status=BOOTING if status == READY and not address else status,
        type=listed["type"],
        region=listed["zone"],
        cents_per_hour=prices.get(listed["type"], 0),
        launch=own.get(LAUNCH, ""),
        since=float(since) if since.isdecimal() else listed["launched"],
        address=address,
        private_address=listed["address"],
        owner=own.get(OWNER, ""),
        state=own.get(STATE, ""),
        ends_at=float(listed.get("ends_at") or 0.0),
        lost=LOST.get(listed["why"]) or _block_over(listed),
    )


def _block_over(listed: Mapping[str, Any]) -> str:
    """Return how a machine ended whose block is over and whose end nobody asked for."""
    by_aws = listed["status"] in GONE and not listed["why"].startswith(CLIENT)
    return BLOCK_OVER if by_aws and listed.get("ends_at") else ""


def block_end(api: AwsApi, reservation: str) -> float:
    """Return when EC2 begins to end the machines of a capacity block; 0 where nobody knows."""
    blocks = _beside(
        api,
        *("describe_capacity_reservations", "CapacityReservations"),
        CapacityReservationIds=[reservation],
    )
    end = max((seconds(one.get("EndDate")) for one in blocks), default=0.0)
    return max(end - BLOCK_SECONDS, 0.0)


def _beside(api: AwsApi, operation: str, key: str, **asked: Any) -> list[Any]:
    """Return a list beside that of the machines; nothing where AWS refuses it.

    Machines are seen and ended whatever else this account may not ask.
    """
    try:
        return list(api.all(operation, key, **asked))
    except AwsError:
        return []


def _first_interface(interfaces: Iterable[Mapping[str, Any]]) -> str:
    """Return the id of the interface that carries IP; empty while none is listed."""
    for one in interfaces:
        at = one.get("Attachment", {})
        if at.get("DeviceIndex") == 0 and at.get("NetworkCardIndex", 0) == 0:
            return str(one.get("NetworkInterfaceId", ""))
    return ""


def _impaired(api: AwsApi, found: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the ids of machines of which EC2 says that one of its checks fails."""
    if not any(one["status"] == READY for one in found):
        return set()
    ids = {one["id"] for one in found}
    # By no id: one that is not known everywhere yet would be an error for all.
    bad = [
        told
        for check in ("system", "instance")
        for told in _beside(
            api, "describe_instance_status", "InstanceStatuses", Filters=[_impaired_by(check)]
        )
    ]
    return {str(one["InstanceId"]) for one in bad} & ids


def _impaired_by(check: str) -> dict[str, Any]:
    return named(f"{check}-status.status", "impaired")


def _interrupted(api: AwsApi, found: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the ids of spot machines that EC2 has said to take back."""
    if not any(one["spot"] and one["status"] in (READY, BOOTING) for one in found):
        return set()
    requests = _beside(
        api,
        *("describe_spot_instance_requests", "SpotInstanceRequests"),
        Filters=[named("status-code", *sorted(INTERRUPTED))],
    )
    return {str(one.get("InstanceId") or "") for one in requests}
