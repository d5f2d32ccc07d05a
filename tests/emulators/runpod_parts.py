"""What an account at RunPod is made of: refusals, types of accelerators, pods, faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

# The words in which RunPod refuses for want of machines, and beyond an account's spend limit too.
FULL = "There are no longer any instances available with the requested specifications."
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
}
ACTIONS = {
    "PROVISIONING": ["stop", "terminate"],
    "RUNNING": ["stop", "restart", "terminate"],
    "EXITED": ["start", "terminate"],
    "ERROR": ["start", "terminate"],
}


class Refusal(Exception):
    """A request that the API refuses."""

    def __init__(self, status: int, detail: str, errors: list[str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.body: dict[str, Any] = {"title": TITLES[status], "status": status, "detail": detail}
        if errors:
            self.body["errors"] = errors


class Machines(Protocol):
    """What stands behind pods."""

    def start(self, pod: str, rank: int | None) -> tuple[str, int, str]:
        """Start a container; return where its SSH is published, and its address in a cluster.

        rank: None for a pod that is in no cluster, and so has no network between pods.
        """

    def publish(self, pod: str, port: int) -> int:
        """Publish the SSH of a pod at another port than this one; return it."""

    def expose(self, pod: str, private: int) -> int:
        """Publish another port of a pod; return at which."""

    def restart(self, pod: str) -> None:
        """Start a container again, on an empty disk."""

    def stop(self, pod: str) -> None:
        """End a container."""


class NoMachines:
    """Addresses that nobody has (RFC 5737), for tests that connect to none, or one for all pods."""

    def __init__(self, host: str = "") -> None:
        self.host = host
        self._count = 0

    def start(self, pod: str, rank: int | None) -> tuple[str, int, str]:
        """Return the next address."""
        self._count += 1
        host = self.host or f"198.51.100.{self._count}"
        return host, 22001 + self._count, "" if rank is None else f"10.65.0.{rank + 2}"

    def publish(self, pod: str, port: int) -> int:
        """Return another port."""
        return port + 1000

    def expose(self, pod: str, private: int) -> int:
        """Return a port that no two ports below 10000 share."""
        return 20000 + private

    def restart(self, pod: str) -> None:
        """Nothing runs."""

    def stop(self, pod: str) -> None:
        """Nothing runs."""


@dataclass
class Gpu:
    """A type of accelerator, and how many of it each data center has left."""

    id: str
    dollars: float
    left: dict[str, int] = field(default_factory=dict)
    memory: int = 141
    most: int = 8

    def described(self) -> dict[str, Any]:
        """Return it as the catalogue describes it, without its stock."""
        return {
            "id": self.id,
            "name": self.id.removeprefix("NVIDIA "),
            "pool": None,
            "manufacturer": "NVIDIA",
            "memory": self.memory,
            "secure": True,
            "community": False,
            "price": {"secure": self.dollars, "community": 0.0},
            "maxCount": {"secure": self.most, "community": 0},
        }

    def kind(self, count: int) -> dict[str, Any]:
        """Return what a pod of it is listed with."""
        return {"gpu": {"id": self.id, "count": count}}

    def level(self, place: str, count: int) -> str:
        """Return the stock of a data center in words; empty where it has none."""
        pods = self.left.get(place, 0) // count
        return "" if pods < 1 else "LOW" if pods < 3 else "MEDIUM" if pods < 5 else "HIGH"


@dataclass
class Cpu:
    """A flavor of CPU pods, and how many vCPUs of it each data center has left."""

    id: str
    # Of one vCPU.
    dollars: float
    left: dict[str, int] = field(default_factory=dict)
    least: int = 2
    most: int = 32
    ram: float = 2.0

    def described(self) -> dict[str, Any]:
        """Return it as the catalogue describes it, without its stock."""
        return {
            "id": self.id,
            "name": self.id,
            "group": "Gen 5",
            "vcpu": {"min": self.least, "max": self.most},
            "ramGbPerVcpu": self.ram,
            "price": {"securePerVcpu": self.dollars, "serverlessPerVcpu": self.dollars},
        }

    def level(self, place: str, count: int) -> str:
        """Return the stock of a data center that offers it in words."""
        fits = self.left[place] >= count and self.least <= count <= self.most
        return "MEDIUM" if fits else "NONE"

    def kind(self, count: int) -> dict[str, Any]:
        """Return what a pod of it is listed with."""
        memory = max(int(self.ram * count), 1)
        return {"cpu": {"id": self.id, "vcpuCount": count, "memory": memory}}


@dataclass
class Faults:
    """What goes wrong, by configuration; what is counted is used up as it happens."""

    # Seconds from a launch until pods run, and from then until each address is listed.
    boot_seconds: float = 0.0
    ssh_seconds: float = 0.0
    overlay_seconds: float = 0.0
    # How far lists of pods lag behind a launch: the cluster is there without them.
    listing_seconds: float = 0.0
    # Requests that the key may not make, as ("POST", "/clusters").
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    # Launches that do not fit, for a reason that no schema tells.
    unfit: int = 0
    # Launches that are refused for want of machines although the catalogue shows some.
    full: int = 0
    # What the account may spend in US dollars an hour; 0 is no limit.
    spend_limit: float = 0.0
    empty_balance: bool = False
    # Clusters whose end leaves their pods, and whether these can be ended then.
    outlived: int = 0
    stuck: bool = False
    # Ranks of pods that come up broken.
    broken: set[int] = field(default_factory=set)


@dataclass
class Pod:
    """One pod, and what is on its container disk."""

    id: str
    name: str
    created: float
    started: float
    place: str
    gpu: Gpu | Cpu
    count: int
    wanted: dict[str, Any]
    host: str
    port: int
    overlay: str
    cluster: str = ""
    rank: int = 0
    status: str = ""
    disk: dict[str, str] = field(default_factory=dict)
    # Where ports beside that of SSH are published.
    exposed: dict[int, int] = field(default_factory=dict)

    @property
    def dollars(self) -> float:
        """US dollars an hour while it runs."""
        return round(self.gpu.dollars * self.count, 4)

    def described(self, now: float, faults: Faults) -> dict[str, Any]:
        """Return it as it is listed at a time, in seconds since the epoch."""
        up = now - self.started - faults.boot_seconds
        status = self.status or ("RUNNING" if up >= 0 else "PROVISIONING")
        if status == "RUNNING" and self.rank in faults.broken:
            status = "ERROR"
        runs = status == "RUNNING"
        direct = {"host": self.host, "port": self.port, "username": "root", "command": "ssh"}
        reached = runs and up >= faults.ssh_seconds and "22/tcp" in self.wanted.get("ports", ())
        found = {
            "id": self.id,
            "name": self.name,
            "status": status,
            "actions": ACTIONS[status],
            "image": self.wanted["image"],
            "args": self.wanted.get("args", ""),
            "disk": self.wanted.get("disk", 50),
            "mounts": self.wanted.get("mounts", {}),
            "ports": self.wanted.get("ports", []),
            "env": self.wanted.get("env", {}),
            "registry": None,
            **self.gpu.kind(self.count),
            "cloud": "SECURE",
            "dataCenterId": self.place,
            "cudaVersion": "12.8" if isinstance(self.gpu, Gpu) else None,
            "ssh": {"proxy": None, "direct": direct if reached else None},
            "template": None,
            # Nothing is charged on the list before it runs.
            "cost": self.dollars if runs else 0.0,
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": {"uptime": int(up), "ports": self._ports(reached)} if runs else None,
            "createdAt": moment(self.created),
            "startedAt": moment(self.started) if runs else None,
        }
        if self.cluster:
            member: dict[str, Any] = {"id": self.cluster, "rank": self.rank if runs else None}
            if runs and up >= faults.overlay_seconds:
                member["ip"] = self.overlay
            found["cluster"] = member
        return found

    def _ports(self, reached: bool) -> list[dict[str, Any]]:
        """Return what is published beside SSH, as the API lists it."""
        wanted = [one.partition("/") for one in self.wanted.get("ports", ())]
        return [
            {
                "private": int(number),
                "public": {22: self.port, **self.exposed}[int(number)] if reached else None,
                "type": protocol,
                "ip": self.host if reached else None,
            }
            for number, _, protocol in wanted
        ]


def moment(seconds: float) -> str:
    """Return a time as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
