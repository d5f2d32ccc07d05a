"""An account at RunPod: what exists in it, what it refuses, and what becomes of a launch.

Nothing here speaks HTTP; `runpod_cloud.py` serves it. Times are seconds since the epoch, of the
clock that it is given.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .runpod_parts import FULL, Cpu, Faults, Gpu, Machines, NoMachines, Pod, Refusal, moment

DAY, SSH = 86400.0, 22


class Account:
    """Everything that one key can see."""

    def __init__(
        self,
        types: list[Gpu],
        centers: Mapping[str, list[str]],
        now: Callable[[], float] = time.time,
        machines: Machines | None = None,
        cpus: Sequence[Cpu] = (),
    ) -> None:
        self.types = {one.id: one for one in types}
        self.cpus = {one.id: one for one in cpus}
        self.centers = dict(centers)
        self.faults = Faults()
        self.clusters: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        # US dollars a day, by volume.
        self.bills: dict[str, float] = {}
        self.machines = machines or NoMachines()
        self._now = now

    def list_types(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the catalogue, with stock in words where it is asked for."""
        if ("include" in query) != ("product" in query):
            raise Refusal(400, "include=AVAILABILITY requires product")
        found = []
        for gpu in self.types.values():
            one = gpu.described()
            if "include" in query:
                levels = {p: gpu.level(p, int(query.get("count", 1))) for p in sorted(gpu.left)}
                places = [
                    {"id": place, "name": place, "availability": level}
                    for place, level in levels.items()
                    if level
                ]
                one |= {"availability": places[0]["availability"] if places else "NONE"}
                one |= {"dataCenters": places} if places else {}
            found.append(one)
        return {"gpus": found}

    def list_cpus(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the flavors of CPU pods, with stock in words where it is asked for."""
        asked, count = "include" in query, int(query.get("vcpuCount", 2))
        if asked != ("product" in query) or ("vcpuCount" in query and not asked):
            raise Refusal(400, "include=AVAILABILITY requires product, and vcpuCount requires both")
        if not _is_power_of_two(count):
            raise Refusal(400, "vcpuCount must be a power of two")
        found = []
        for cpu in self.cpus.values():
            one = cpu.described()
            if asked:
                places = [
                    {"id": place, "name": place, "availability": cpu.level(place, count)}
                    for place in sorted(cpu.left)
                ]
                one |= {"availability": places[0]["availability"] if places else "NONE"}
                one |= {"dataCenters": places} if places else {}
            found.append(one)
        return {"cpus": found}

    def list_centers(self) -> dict[str, Any]:
        """Return the data centers and the network volumes that they have."""
        return {
            "dataCenters": [
                {
                    "id": one,
                    "name": one,
                    "region": "NORTH_AMERICA",
                    "networkVolumeTypes": kinds,
                    "compliance": [],
                    "globalNetwork": True,
                }
                for one, kinds in self.centers.items()
            ]
        }

    def list_clusters(self) -> dict[str, Any]:
        """Return the clusters."""
        return {"clusters": [self._described(one) for one in self.clusters.values()]}

    def list_pods(self, with_members: bool) -> dict[str, Any]:
        """Return pods of their own, and those of clusters where they are asked for."""
        now = self._now()
        return {
            "pods": [
                one.described(now, self.faults)
                for one in self.pods.values()
                if (with_members or not one.cluster)
                and now - one.created >= self.faults.listing_seconds
            ]
        }

    def create_cluster(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Launch a cluster, all of its pods or none."""
        shape = wanted["compute"]
        gpu, count, number = shape["gpuTypeId"], shape["gpuCountPerPod"], shape["podCount"]
        place = self._place(wanted, gpu, count, number)
        identity = f"cluster{secrets.token_hex(5)}"
        self.clusters[identity] = {
            "id": identity,
            "name": wanted["name"],
            "type": wanted["type"],
            "compute": shape,
            "createdAt": moment(self._now()),
        }
        for rank in range(number):
            self._start(
                wanted, f"{wanted['type'].lower()}-node-{rank}", gpu, count, place, identity, rank
            )
        return self._described(self.clusters[identity])

    def create_pod(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Launch a pod of its own, with accelerators or without."""
        if ("gpu" in wanted) == ("cpu" in wanted):
            raise Refusal(400, "exactly one of gpu or cpu must be set")
        if "cpu" in wanted:
            gpu, count = wanted["cpu"]["id"], wanted["cpu"]["vcpuCount"]
            if not _is_power_of_two(count):
                raise Refusal(400, "vcpuCount must be a power of two")
            if "persistent" in wanted.get("mounts", {}):
                raise Refusal(400, "mounts.persistent is invalid for a CPU pod")
            if wanted.get("globalNetworking"):
                raise Refusal(400, "global networking requires an NVIDIA GPU")
        else:
            gpu, count = wanted["gpu"]["id"], wanted["gpu"].get("count", 1)
        place = self._place(wanted, gpu, count, 1)
        pod = self._start(wanted, wanted["name"], gpu, count, place)
        return pod.described(self._now(), self.faults)

    def delete_cluster(self, identity: str) -> None:
        """End a cluster, and its pods unless they outlive it."""
        if identity not in self.clusters:
            raise Refusal(404, "cluster not found")
        del self.clusters[identity]
        if self.faults.outlived > 0:
            self.faults.outlived -= 1
            return
        for one in [pod for pod in self.pods.values() if pod.cluster == identity]:
            self._remove(one)

    def delete_pod(self, identity: str) -> None:
        """End a pod that is of no cluster, or of one that is gone."""
        if identity not in self.pods:
            raise Refusal(404, "pod not found")
        pod = self.pods[identity]
        if pod.cluster in self.clusters or (pod.cluster and self.faults.stuck):
            raise Refusal(409, "pod belongs to a cluster")
        self._remove(pod)

    def list_volumes(self) -> dict[str, Any]:
        """Return the network volumes."""
        return {"networkVolumes": list(self.volumes.values())}

    def create_volume(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Make a network volume."""
        if not self.centers.get(wanted["dataCenter"]):
            raise Refusal(400, "the data center has no network volumes")
        identity = f"vol{secrets.token_hex(4)}"
        self.volumes[identity] = {"id": identity, "type": "STANDARD", **wanted}
        return self.volumes[identity]

    def delete_volume(self, identity: str) -> None:
        """Delete a network volume that no pod has."""
        if identity not in self.volumes:
            raise Refusal(404, "network volume not found")
        if any(identity == self._volume_of(one.wanted) for one in self.pods.values()):
            raise Refusal(409, "network volume is in use")
        del self.volumes[identity]

    def bill_volumes(self) -> dict[str, Any]:
        """Return what volumes cost yesterday, a whole day, and today, half a day so far."""
        today = self._now() // DAY * DAY
        records = [
            {
                "startTime": moment(today - DAY * back),
                "endTime": moment(today - DAY * (back - 1)),
                "networkVolumeId": one,
                "totalAmount": dollars * (1.0 if back else 0.5),
                "standardAmount": dollars * (1.0 if back else 0.5),
                "highPerformanceAmount": 0.0,
            }
            for one, dollars in self.bills.items()
            for back in (1, 0)
        ]
        total = {"totalAmount": 0.0, "standardAmount": 0.0, "highPerformanceAmount": 0.0}
        query = {"startTime": moment(today - DAY), "endTime": moment(today), "bucketSize": "day"}
        return {
            "records": records,
            "metadata": {
                "query": query,
                "recordCount": len(records),
                "uniqueNetworkVolumeCount": len(self.bills),
                "totals": total,
            },
        }

    def restart(self, identity: str) -> None:
        """Start a pod's container again: its disk is emptied and its port is another one."""
        pod = self.pods[identity]
        self.machines.restart(identity)
        pod.port = self.machines.publish(identity, pod.port)
        pod.started, pod.status = self._now(), ""
        pod.disk.clear()

    def move_ports(self) -> None:
        """Publish every pod's SSH at another port; nothing is started again."""
        for pod in self.pods.values():
            pod.port = self.machines.publish(pod.id, pod.port)

    @property
    def cost(self) -> float:
        """US dollars an hour of all pods."""
        return sum(one.dollars for one in self.pods.values())

    def _described(self, cluster: dict[str, Any]) -> dict[str, Any]:
        now = self._now()
        pods = [one for one in self.pods.values() if one.cluster == cluster["id"]]
        counts = Counter(one.described(now, self.faults)["status"] for one in pods)
        place = {"dataCenterId": pods[0].place} if pods else {}
        return {**cluster, **place, "pods": {"total": len(pods), "byStatus": dict(counts)}}

    def _place(self, wanted: dict[str, Any], kind: str, count: int, number: int) -> str:
        """Return where a launch is placed, or refuse it."""
        if self.faults.empty_balance:
            raise Refusal(402, "insufficient balance")
        if self.faults.unfit > 0:
            self.faults.unfit -= 1
            raise Refusal(422, "Request validation failed.", ["$.image: no such image"])
        gpu = self.types.get(kind) or self.cpus.get(kind)
        least = gpu.least if isinstance(gpu, Cpu) else 1
        if gpu is None or not least <= count <= gpu.most:
            raise Refusal(400, f"type {kind} cannot be had {count} times in a pod")
        volume = self._volume_of(wanted)
        if volume and volume not in self.volumes:
            raise Refusal(400, "network volume not found")
        full = self.faults.full > 0
        self.faults.full -= full
        dear = self.cost + number * count * gpu.dollars > (self.faults.spend_limit or 1e9)
        places = wanted.get("dataCenterIds") or list(gpu.left)
        room = [one for one in places if gpu.left.get(one, 0) >= number * count]
        if volume:
            room = [one for one in room if one == self.volumes[volume]["dataCenter"]]
        if full or dear or not room:
            raise Refusal(400, FULL)
        gpu.left[room[0]] -= number * count
        return room[0]

    def _start(
        self,
        wanted: dict[str, Any],
        name: str,
        kind: str,
        count: int,
        place: str,
        cluster: str = "",
        rank: int = 0,
    ) -> Pod:
        identity, now = f"pod{secrets.token_hex(5)}", self._now()
        seen = self.machines.start(identity, rank if cluster else None)
        gpu = self.types.get(kind) or self.cpus[kind]
        pod = Pod(identity, name, now, now, place, gpu, count, wanted, *seen, cluster, rank)
        ports = [int(one.partition("/")[0]) for one in wanted.get("ports", ())]
        pod.exposed = {one: self.machines.expose(identity, one) for one in ports if one != SSH}
        self.pods[identity] = pod
        return pod

    def _remove(self, pod: Pod) -> None:
        pod.gpu.left[pod.place] += pod.count
        self.machines.stop(pod.id)
        del self.pods[pod.id]

    @staticmethod
    def _volume_of(wanted: Mapping[str, Any]) -> str:
        (mount,) = wanted.get("mounts", {}).get("network") or ({"volumeId": ""},)
        return str(mount["volumeId"])


def _is_power_of_two(count: int) -> bool:
    return count > 1 and not count & (count - 1)
