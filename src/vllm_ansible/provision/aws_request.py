"""What EC2 is asked for a launch: pure, so that the same launch is asked for in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .aws_api import tag_list
from .aws_checks import Checked
from .aws_machines import LAUNCH, SINCE, SLOTS
from .aws_settings import BLOCK, SPOT, Settings
from .aws_surroundings import Place
from .aws_types import interfaces
from .fleet import Offer, Pending
from .own_end import NO_ROOT, user_data

TAGGED = ("instance", "volume", "network-interface")


def body(
    wanted: Settings,
    checked: Checked,
    place: Place,
    group: str,
    tags: Mapping[str, str],
    slots: Sequence[int],
    offer: Offer,
    pending: Pending,
) -> dict[str, Any]:
    """Return the parameters of RunInstances: all slots or none, in one zone.

    User data ends the machines some time after the limits and holds no secret. `group` is the
    placement group, empty for none; `tags` are those of all that belongs to the cluster.
    """
    own = {
        "Name": wanted.cluster,
        **tags,
        SLOTS: ",".join(map(str, slots)),
        LAUNCH: pending.launch,
        SINCE: str(int(pending.at)),
    }
    kinds = (*TAGGED, "spot-instances-request") if wanted.market == SPOT else TAGGED
    asked: dict[str, Any] = {
        "ClientToken": pending.launch,
        "MinCount": len(slots),
        "MaxCount": len(slots),
        "ImageId": checked.image,
        "InstanceType": offer.type,
        "KeyName": place.key,
        "NetworkInterfaces": interfaces(
            checked.types[offer.type],
            *(place.subnet, [place.security_group], wanted.public_address),
        ),
        "BlockDeviceMappings": [{"DeviceName": checked.root_device, "Ebs": _root(wanted)}],
        # What runs on a machine gets no credentials of it by a forwarded request.
        "MetadataOptions": {"HttpTokens": "required"},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(own)} for kind in kinds],
    }
    if group:
        asked["Placement"] = {"GroupName": group}
    script = user_data(wanted, pending.at, offer.cents_per_hour * len(slots))
    if script and wanted.privileges != NO_ROOT:
        # botocore encodes it.
        asked["UserData"] = script
    if wanted.instance_profile:
        asked["IamInstanceProfile"] = {"Name": wanted.instance_profile}
    return asked | _market(wanted)


def _root(wanted: Settings) -> dict[str, Any]:
    """Return the root volume, which ends with its machine."""
    return {"VolumeSize": wanted.root_gib, "VolumeType": "gp3", "DeleteOnTermination": True}


def _market(wanted: Settings) -> dict[str, Any]:
    """Return what says how a launch is paid for."""
    found: dict[str, Any] = {}
    if wanted.market == SPOT:
        found["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    else:
        # Else it would be stopped by a shutdown from within; a spot machine cannot be stopped.
        found["InstanceInitiatedShutdownBehavior"] = "terminate"
    if wanted.market == BLOCK:
        found["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if wanted.reservation:
        found["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": wanted.reservation}
        }
    return found
