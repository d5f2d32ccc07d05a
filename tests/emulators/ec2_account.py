"""An account of the emulated EC2: what becomes of a launch, and what is refused.

Nothing here speaks HTTP; `ec2.py` serves it. Types are EC2's own as moto holds them. Times are
seconds since the epoch by the clock that it is given.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from .ec2_machine import new_machine, new_volume, user_data
from .ec2_network import Network
from .ec2_offers import Offers
from .ec2_parts import AMI, PARAMETER, Faults, Refusal, selected, wrong
from .lambda_parts import Machines

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopped": 80}
FILTERS = {"instance-state-name": "State.Name", "client-token": "ClientToken"}
CHECKS = {
    f"{one}-status.status": f"{one.capitalize()}Status.Status" for one in ("system", "instance")
}
INTERRUPTION_SECONDS = 120.0
LISTED_SECONDS = 3600.0


class Account:
    """Machines, volumes and reservations of one region; `room` is by type and zone.

    `hosts` start what stands behind a machine, such as hosts of a lab; without them its addresses
    lead nowhere.
    """

    def __init__(
        self,
        room: dict[tuple[str, str], int],
        now: Callable[[], float] = time.time,
        hosts: Machines | None = None,
    ) -> None:
        self.now, self.faults, self.hosts = now, Faults(), hosts
        self.offers = Offers(room, lambda: self.now())
        self.room, self.reserve = self.offers.room, self.offers.reserve
        self.network = Network(self._users, self.faults)
        self.machines: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.reservations = self.offers.reservations
        self.parameters = {PARAMETER: AMI}
        self._tokens: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._launched: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._stopped: set[str] = set()
        # By machine: what it runs at its first start, and what its shutdown from within does.
        self.user_data: dict[str, str] = {}
        self._shutdown: dict[str, str] = {}

    def run_instances(self, asked: dict[str, Any]) -> dict[str, Any]:
        token = asked["ClientToken"]
        if token in self._tokens:
            before, answer = self._tokens[token]
            if before != asked:
                words = "Arguments on this idempotent request are inconsistent with arguments used"
                raise Refusal("IdempotentParameterMismatch", words)
            return answer
        kind = INSTANCE_TYPES.get(asked["InstanceType"])
        if not kind:
            raise wrong(f"Invalid value '{asked['InstanceType']}' for InstanceType.")
        self.network.describe_images({"ImageIds": [asked["ImageId"]]})
        self.network.key(asked["KeyName"])
        zone = self.network.check(asked, kind)
        group = asked.get("Placement", {}).get("GroupName")
        if group:
            self.network.placement(group)
        self._check_quota(asked, kind)
        self.offers.take(asked, kind, zone, group)
        made = [self._machine(asked, zone, index) for index in range(asked["MaxCount"])]
        answer = {"ReservationId": f"r-{secrets.token_hex(8)}", "Instances": made}
        self._tokens[token] = (dict(asked), answer)
        return answer

    def describe_instances(self, asked: dict[str, Any]) -> dict[str, Any]:
        chosen = [self.machine(one) for one in asked.get("InstanceIds", ())] or self._seen()
        return {"Reservations": [{"Instances": [one]} for one in selected(chosen, asked, FILTERS)]}

    def describe_instance_status(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = []
        for one in self._seen():
            if one["State"]["Name"] == "running":
                bad = one["InstanceId"] in self.faults.impaired
                status = {"Status": "impaired" if bad else "ok"}
                found.append(
                    {
                        "InstanceId": one["InstanceId"],
                        "InstanceState": one["State"],
                        "InstanceStatus": status,
                        "SystemStatus": {"Status": "ok"},
                    }
                )
        return {"InstanceStatuses": selected(found, asked, CHECKS)}

    def describe_spot_instance_requests(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = [
            {
                "SpotInstanceRequestId": one["SpotInstanceRequestId"],
                "InstanceId": one["InstanceId"],
                "Status": {
                    "Code": "marked-for-termination"
                    if one["InstanceId"] in self.faults.interrupted
                    else "fulfilled"
                },
            }
            for one in self._seen()
            if "SpotInstanceRequestId" in one
        ]
        return {"SpotInstanceRequests": selected(found, asked, {"status-code": "Status.Code"})}

    def interrupt(self, machine: str) -> None:
        """Take a spot machine back: said now, carried out in two minutes."""
        self.faults.interrupted[machine] = self.now() + INTERRUPTION_SECONDS

    def shut_down(self, machine: str) -> None:
        """Shut a machine down from within: it is ended or stopped, as its launch said."""
        if self._shutdown[machine] == "terminate":
            self._end(machine, "Client.InstanceInitiatedShutdown")
        else:
            self._stopped.add(machine)

    def terminate_instances(self, asked: dict[str, Any]) -> dict[str, Any]:
        chosen = [self.machine(one) for one in asked["InstanceIds"]]
        for one in chosen:
            if one["InstanceId"] in self.faults.protected:
                words = f"The instance '{one['InstanceId']}' may not be terminated."
                raise Refusal("OperationNotPermitted", words)
        for one in chosen:
            self._end(one["InstanceId"], "Client.UserInitiatedShutdown")
        self._pass()
        return {
            "TerminatingInstances": [
                {"InstanceId": one["InstanceId"], "CurrentState": one["State"]} for one in chosen
            ]
        }

    def create_tags(self, asked: dict[str, Any]) -> dict[str, Any]:
        for identity in asked["Resources"]:
            tags = {one["Key"]: one["Value"] for one in self.machine(identity)["Tags"]}
            tags |= {one["Key"]: one["Value"] for one in asked["Tags"]}
            self.machines[identity]["Tags"] = [
                {"Key": key, "Value": value} for key, value in tags.items()
            ]
        return {}

    def describe_volumes(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._pass()
        return {"Volumes": selected(self.volumes.values(), asked, {})}

    def delete_volume(self, asked: dict[str, Any]) -> dict[str, Any]:
        del self.volumes[asked["VolumeId"]]
        return {}

    def machine(self, identity: str) -> dict[str, Any]:
        """Return a machine that is known by now."""
        if identity not in {one["InstanceId"] for one in self._seen()}:
            words = f"The instance ID '{identity}' does not exist"
            raise Refusal("InvalidInstanceID.NotFound", words)
        return self.machines[identity]

    def at(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the machine of an id, or of an interface: one of several has to be named."""
        if "InstanceId" in asked:
            one = self.machine(asked["InstanceId"])
            if len(one["NetworkInterfaces"]) > 1:
                words = "There are multiple interfaces attached to instance. Specify one of them."
                raise Refusal("InvalidInstanceID", words)
            return one
        for one in self._seen():
            first = one["NetworkInterfaces"][0]
            if first["NetworkInterfaceId"] == asked["NetworkInterfaceId"]:
                return one
        raise Refusal("InvalidNetworkInterfaceID.NotFound", "The networkInterface does not exist")

    @property
    def paid_for(self) -> list[str]:
        """Ids of machines that are neither ended nor ending."""
        self._pass()
        ending = ("shutting-down", "terminated")
        return sorted(
            name for name, one in self.machines.items() if one["State"]["Name"] not in ending
        )

    def _check_quota(self, asked: dict[str, Any], kind: dict[str, Any]) -> None:
        spot = asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
        most = self.faults.spot_vcpus if spot else self.faults.vcpus
        each = kind["VCpuInfo"]["DefaultVCpus"]
        if each * (len(self.paid_for) + asked["MaxCount"]) <= most:
            return
        if spot:
            raise Refusal("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        words = (
            f"You have requested more vCPU capacity than your current vCPU limit of {most} allows"
        )
        raise Refusal("VcpuLimitExceeded", words)

    def _machine(self, asked: dict[str, Any], zone: str, index: int) -> dict[str, Any]:
        one = new_machine(asked, zone, index, len(self.machines) + 1, self.now())
        identity = one["InstanceId"]
        if self.hosts:
            one["PrivateIpAddress"], _ = self.hosts.start(identity)
        self.machines[identity], self._launched[identity] = one, self.now()
        self.user_data[identity] = user_data(asked)
        # A one-time spot machine cannot be stopped (EC2's user guide, "Manage Spot Instances").
        behaviour = asked.get("InstanceInitiatedShutdownBehavior", "stop")
        self._shutdown[identity] = "terminate" if "SpotInstanceRequestId" in one else behaviour
        volume = new_volume(asked, one)
        self.volumes[volume["VolumeId"]] = volume
        if self.faults.stillborn:
            self._end(identity, self.faults.stillborn)
        return one

    def _users(self) -> list[dict[str, Any]]:
        self._pass()
        return [one for one in self.machines.values() if one["State"]["Name"] != "terminated"]

    def _seen(self) -> list[dict[str, Any]]:
        """Return the machines that requests know of."""
        self._pass()
        late, gone = self.now() - self.faults.late_seconds, self.now() - LISTED_SECONDS
        return [
            one
            for name, one in self.machines.items()
            if self._launched[name] <= late and self._ended.get(name, self.now()) > gone
        ]

    def _end(self, identity: str, why: str) -> None:
        self._ended.setdefault(identity, self.now())
        if why:
            self.machines[identity]["StateReason"] = {"Code": why, "Message": f"{why}: in words"}

    def _pass(self) -> None:
        """Let the time that has passed have its effect."""
        for identity, at in self.faults.interrupted.items():
            if self.now() >= at:
                self._end(identity, "Server.SpotInstanceTermination")
        for identity, one in self.machines.items():
            block = one.get("CapacityReservationId")
            if block and self.offers.reservation(block)["State"] == "expired":
                self._end(identity, "")
            state = "running"
            if self.now() < self._launched[identity] + self.faults.boot_seconds:
                state = "pending"
            if identity in self._stopped:
                state = "stopped"
            if identity in self._ended:
                over = self._ended[identity] + self.faults.terminating_seconds
                state = "terminated" if self.now() >= over else "shutting-down"
            if state == "terminated" and one["State"]["Name"] != state:
                self._clear(identity, one)
            one["State"] = {"Name": state, "Code": CODES[state]}

    def _clear(self, identity: str, one: dict[str, Any]) -> None:
        """Give back what a machine had: its volume, its addresses, its room."""
        one.pop("PublicIpAddress", None)
        one.pop("PrivateIpAddress", None)
        self.volumes = {
            name: each
            for name, each in self.volumes.items()
            if [at["InstanceId"] for at in each["Attachments"]] != [identity]
        }
        for each in self.network.addresses.values():
            if each.get("InstanceId") == identity:
                self.network.free(each)
        self.offers.give_back(one)
        if self.hosts:
            self.hosts.stop(identity)
