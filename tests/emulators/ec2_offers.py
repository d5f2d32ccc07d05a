"""What the emulated EC2 has to give: types, room in zones, reservations and capacity blocks."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from .ec2_machine import date
from .ec2_parts import REGION, ZONES, Refusal, clash, selected, wrong

# Before the end of a block, what runs in it is ended.
BLOCK_SECONDS = 1800


class Offers:
    """Room by type and zone; a reservation holds its own."""

    def __init__(self, room: dict[tuple[str, str], int], now: Callable[[], float]) -> None:
        self.room, self.now = room, now
        self.reservations: dict[str, dict[str, Any]] = {}
        self.regions = [REGION]

    def reserve(self, kind: str, zone: str, count: int, block_end: float = 0.0) -> str:
        """Make a reservation, or a block that ends; return its id."""
        identity = f"cr-{secrets.token_hex(8)}"
        self.reservations[identity] = {
            "CapacityReservationId": identity,
            "InstanceType": kind,
            "AvailabilityZone": zone,
            "TotalInstanceCount": count,
            "AvailableInstanceCount": count,
            "State": "active",
            "ReservationType": "capacity-block" if block_end else "default",
            "StartDate": date(self.now()),
            **({"EndDate": date(block_end)} if block_end else {}),
        }
        return identity

    def describe_instance_types(self, asked: dict[str, Any]) -> dict[str, Any]:
        for one in asked["InstanceTypes"]:
            if one not in INSTANCE_TYPES:
                words = f"The following supplied instance types do not exist: [{one}]"
                raise Refusal("InvalidInstanceType", words)
        return {"InstanceTypes": [INSTANCE_TYPES[one] for one in asked["InstanceTypes"]]}

    def describe_instance_type_offerings(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [{"InstanceType": kind, "Location": zone} for kind, zone in self.room]
        return {"InstanceTypeOfferings": selected(found, asked, {"instance-type": "InstanceType"})}

    def describe_regions(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Regions": [{"RegionName": one} for one in self.regions]}

    def describe_availability_zones(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"AvailabilityZones": [{"ZoneName": one} for one in ZONES]}

    def describe_capacity_reservations(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "CapacityReservations": [
                self.reservation(one) for one in asked["CapacityReservationIds"]
            ]
        }

    def take(self, asked: dict[str, Any], kind: dict[str, Any], zone: str, group: Any) -> None:
        """Take room of a zone, or of a reservation."""
        count, name = asked["MinCount"], kind["InstanceType"]
        target = asked.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
        block = asked.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block"
        if target:
            one = self.reservation(target["CapacityReservationId"])
            if (one["ReservationType"] == "capacity-block") != block:
                raise clash("The market type does not match the capacity reservation")
            if block and group:
                raise clash("A placement group cannot be given with a capacity block")
            if one["State"] != "active" or (one["InstanceType"], one["AvailabilityZone"]) != (
                name,
                zone,
            ):
                raise wrong("The capacity reservation does not match the request")
            if one["AvailableInstanceCount"] < count:
                words = "The requested reservation does not have sufficient capacity"
                raise Refusal("ReservationCapacityExceeded", words)
            one["AvailableInstanceCount"] -= count
            return
        if self.room.get((name, zone), 0) < count:
            words = (
                f"We currently do not have sufficient {name} capacity in the Availability Zone you "
                f"requested ({zone})."
            )
            raise Refusal("InsufficientInstanceCapacity", words, 500)
        self.room[name, zone] -= count

    def reservation(self, identity: str) -> dict[str, Any]:
        """Return a reservation, as time has left it."""
        if identity not in self.reservations:
            words = f"The capacity reservation '{identity}' does not exist"
            raise Refusal("InvalidCapacityReservationId.NotFound", words)
        one = self.reservations[identity]
        if "EndDate" in one and self.now() >= one["EndDate"].timestamp() - BLOCK_SECONDS:
            one["State"] = "expired"
        return one

    def give_back(self, machine: dict[str, Any]) -> None:
        """Take back the room of a machine."""
        where = (machine["InstanceType"], machine["Placement"]["AvailabilityZone"])
        if "CapacityReservationId" in machine:
            self.reservations[machine["CapacityReservationId"]]["AvailableInstanceCount"] += 1
        elif where in self.room:
            self.room[where] += 1
