"""What an inventory says about pods at RunPod, checked before anything is asked or rented."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.provision import fields
from vllm_ansible.provision.cluster import owner
from vllm_ansible.provision.runpod_pods import FILL, LOAD, PARTS
from vllm_ansible.provision.transport import is_safe

ENDPOINT = "https://api.runpod.io/v2"
REQUEST_SECONDS = 1.0
# Pods of one cluster, by the API's description; a single machine is a pod of its own.
MOST_PODS = 250
# vCPUs of the smallest CPU pod.
LEAST_CPUS = 2
# Sizes of a network volume in GB, by the API's description.
VOLUME_GB = range(10, 4097)
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
# What an account may spend in an hour unless RunPod has raised it, in US dollars.
SPEND_LIMIT = 80.0
# The start command of RunPod's own images is known, and of no other.
AUTO, START, OWN_IMAGES = "auto", "/start.sh", "runpod/"
# Without a character that the shell reads, or that would end the quotes around the command.
PLAIN, PATH = re.compile(r"[A-Za-z0-9._/ =:-]*"), re.compile(r"[A-Za-z0-9._/-]*")
TYPE = re.compile(r"(\d+)x (\S.*)")
PUBLIC_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ \S+( .*)?")


@dataclass(frozen=True, slots=True)
class Settings:
    """The pods of one cluster: prices in US cents an hour, times in seconds, sizes in GB."""

    cluster: str
    key_file: Path
    public_key_file: Path
    # Each is the number of accelerators of a pod and their name in the catalogue.
    types: tuple[str, ...]
    places: tuple[str, ...]
    count: int
    spares: int = 0
    image: str = IMAGE
    disk_gb: int = 200
    volume: str = ""
    volume_gb: int = 0
    volume_path: str = "/workspace"
    remove_volume: bool = False
    # Give all pods back for one that is not fit.
    replace: bool = False
    # Work on pods that somebody else has rented under this cluster's name.
    adopt: bool = False
    # Who rents, as pods say it; empty for the user and name of this machine.
    owner: str = ""
    spend_limit: float = SPEND_LIMIT
    max_cents_per_hour: int | None = None
    max_cents: int | None = None
    max_seconds: float | None = None
    endpoint: str = ENDPOINT
    request_seconds: float = REQUEST_SECONDS
    # Have a pod without accelerators fill the volume before any are rented.
    fill: bool = False
    # Have one send the load of the benchmark.
    load: bool = False
    # Each is a number of vCPUs and a flavor; without any, the cheapest of the catalogue.
    cpu_types: tuple[str, ...] = ()
    cpu_image: str = ""
    cpu_disk_gb: int = 20
    models_dir: str = ""
    # Publish the door's port, which then listens at every address.
    publish_door: bool = False
    door_port: int = 9443
    door_address: str = "data_plane"
    # What the image starts by itself, and a pod after our processes.
    start_command: str = AUTO
    cluster_dir: str = ""

    @property
    def parts(self) -> dict[str, int]:
        """Pods beside the cluster, each with its slot."""
        return {one: PARTS[one] for one, wanted in ((FILL, self.fill), (LOAD, self.load)) if wanted}

    @property
    def ports(self) -> list[str]:
        """What pods publish."""
        return ["22/tcp", *([f"{self.door_port}/tcp"] if self.publish_door else [])]

    @property
    def intervals(self) -> dict[str, float]:
        """Seconds between two turns of a kind."""
        return {"request": self.request_seconds, "launch": self.request_seconds}

    def pinned(self) -> dict[str, str]:
        """Return what means the same from any directory, and from any process of this user."""
        return {
            "runpod_api_key_file": str(self.key_file),
            "runpod_ssh_public_key_file": str(self.public_key_file),
            "runpod_owner": self.owner or owner(),
        }

    def ready(self) -> None:
        """Raise PlanError where one of the keys cannot be read."""
        self.key()
        self.public_key()

    def key(self) -> str:
        """Return the API key; it never leaves the process but in a header."""
        return fields.read_key(self.key_file, "RunPod", "runpod_api_key_file")

    def public_key(self) -> str:
        """Return the public SSH key that pods let in."""
        try:
            text = self.public_key_file.read_text().strip()
            found = f"{len(text.splitlines())} lines" if "\n" in text else f"{text[:20]!r}..."
        except OSError as error:
            text, found = "", error.strerror or str(error)
        if not PUBLIC_KEY.fullmatch(text):
            raise PlanError(
                Problem(
                    f"no public SSH key can be read from {self.public_key_file}",
                    expected="one line, such as ssh-ed25519 AAAA... me@here",
                    found=found,
                    where="runpod_ssh_public_key_file",
                    fix="name the .pub file of your key; ssh-keygen -t ed25519 makes a pair",
                )
            )
        return text


FIELDS: tuple[fields.Field, ...] = (
    ("cluster_name", "cluster", str, True),
    ("runpod_api_key_file", "key_file", str, True),
    ("runpod_ssh_public_key_file", "public_key_file", str, True),
    ("runpod_instance_types", "types", list, True),
    ("runpod_data_centers", "places", list, True),
    ("node_count", "count", int, True),
    ("spare_count", "spares", int, False),
    ("runpod_image", "image", str, False),
    ("runpod_disk_gb", "disk_gb", int, False),
    ("runpod_volume", "volume", str, False),
    ("runpod_volume_gb", "volume_gb", int, False),
    ("runpod_volume_path", "volume_path", str, False),
    ("runpod_remove_volume", "remove_volume", bool, False),
    ("runpod_replace_cluster", "replace", bool, False),
    ("runpod_adopt", "adopt", bool, False),
    ("runpod_owner", "owner", str, False),
    ("runpod_spend_limit", "spend_limit", (int, float), False),
    ("runpod_endpoint", "endpoint", str, False),
    ("runpod_request_seconds", "request_seconds", (int, float), False),
    ("runpod_fill", "fill", bool, False),
    ("runpod_load", "load", bool, False),
    ("runpod_cpu_types", "cpu_types", list, False),
    ("runpod_cpu_image", "cpu_image", str, False),
    ("runpod_cpu_disk_gb", "cpu_disk_gb", int, False),
    ("runpod_publish_door", "publish_door", bool, False),
    ("runpod_start_command", "start_command", str, False),
    ("cluster_dir", "cluster_dir", str, False),
    ("models_dir", "models_dir", str, False),
    ("door_port", "door_port", int, False),
    ("door_address", "door_address", str, False),
)
# All that an inventory says about pods at RunPod.
READ = (*(variable for variable, _, _, _ in FIELDS), *fields.LIMITS)


def settings(variables: Mapping[str, Any], where: str) -> Settings:
    """Return the settings of an inventory; raise PlanError with all that is wrong with them."""
    reading = fields.Reading(variables, where, _EXPECTED)
    reading.read(FIELDS)
    reading.common("runpod_owner")
    _judge(reading)
    reading.not_empty(types="runpod_instance_types", places="runpod_data_centers")
    reading.limit()
    found = reading.done()
    for name in ("key_file", "public_key_file"):
        found[name] = fields.path(found[name])
    for name in ("types", "places", "cpu_types"):
        found[name] = tuple(map(str, found.get(name, ())))
    return Settings(**found)


def parts(kind: str) -> tuple[int, str]:
    """Return number and catalogue name of a type's accelerators; raise ValueError for no type."""
    if match := TYPE.fullmatch(kind):
        return int(match[1]), match[2]
    raise ValueError(kind)


def devices_of(kind: str) -> tuple[int, str] | None:
    """Return number and model of a type's accelerators, by the planner's name where it has one."""
    try:
        count, name = parts(kind)
    except ValueError:
        return None
    try:
        return count, accelerator(name).name
    except PlanError:
        return count, name


def _judge(reading: fields.Reading) -> None:
    """Refuse what no pod can be."""
    found = reading.found
    for one in found.get("types", ()):
        if not TYPE.fullmatch(str(one)) or str(one).startswith("0"):
            reading.wrong("runpod_instance_types", one)
    if found.get("count", 1) > MOST_PODS:
        reading.refuse(
            f"node_count is {found['count']}",
            f"at most {MOST_PODS}",
            str(found["count"]),
            "lower it",
        )
    if found.get("spares", 0) > 0:
        reading.refuse(
            f"spare_count is {found['spares']}, and RunPod adds no pod to a cluster",
            "0: a pod beside the cluster is not on its network",
            str(found["spares"]),
            "set spare_count: 0; runpod_replace_cluster replaces a cluster as a whole",
        )
    if found.get("disk_gb", 1) < 1:
        reading.wrong("runpod_disk_gb", found["disk_gb"])
    if found.get("volume_gb", 0) and found["volume_gb"] not in VOLUME_GB:
        reading.wrong("runpod_volume_gb", found["volume_gb"])
    path = found.get("volume_path", "/workspace")
    if not PurePosixPath(path).is_absolute() or path == "/":
        reading.wrong("runpod_volume_path", path)
    if not is_safe(found.get("endpoint", ENDPOINT)):
        reading.wrong("runpod_endpoint", found["endpoint"])
    if not PLAIN.fullmatch(found.get("start_command", "")):
        reading.wrong("runpod_start_command", found["start_command"])
    if not PATH.fullmatch(found.get("cluster_dir", "")):
        reading.wrong("cluster_dir", found["cluster_dir"])
    _judge_parts(reading, PurePosixPath(path))


def _judge_parts(reading: fields.Reading, volume: PurePosixPath) -> None:
    """Refuse what no pod beside the cluster can be, or can do."""
    found = reading.found
    for one in found.get("cpu_types", ()):
        match = TYPE.fullmatch(str(one))
        count = int(match[1]) if match else 0
        if count < LEAST_CPUS or count & (count - 1):
            reading.wrong("runpod_cpu_types", one)
    if found.get("cpu_disk_gb", 1) < 1:
        reading.wrong("runpod_cpu_disk_gb", found["cpu_disk_gb"])
    models = found.get("models_dir", "")
    if found.get("fill") and not (
        found.get("volume") and PurePosixPath(models).is_relative_to(volume)
    ):
        reading.refuse(
            "runpod_fill fills the network volume, and the models are not on it",
            f"runpod_volume, and models_dir below {volume}",
            f"runpod_volume {found.get('volume') or 'not set'}, models_dir {models or 'not set'}",
            f"set models_dir: {volume}/models, or runpod_fill: false",
        )
    if found.get("load") and not found.get("publish_door"):
        reading.refuse(
            "runpod_load: a pod without accelerators reaches the engines through the door alone",
            "runpod_publish_door: true: RunPod gives it no address on the cluster's network",
            "false",
            "set runpod_publish_door: true and door_address: all before the pods are launched",
        )
    if found.get("publish_door") and found.get("door_address") != "all":
        reading.refuse(
            "runpod_publish_door publishes a port that the door does not listen at",
            "door_address: all, and door_clients_file with the clients that it lets in",
            f"door_address: {found.get('door_address', 'data_plane')}",
            "set door_address: all",
        )


_EXPECTED = {
    "runpod_cpu_types": "a list such as ['8x cpu5c']: vCPUs, a power of two, and their flavor",
    "runpod_cpu_disk_gb": "a whole number of GB, 1 or more",
    "runpod_start_command": "a path with its arguments, without quotes; empty for the image's own",
    "cluster_dir": "a path without quotes or blanks, for the start command of the pods names it",
    "runpod_fill": "true or false",
    "runpod_load": "true or false",
    "runpod_publish_door": "true or false",
    "door_port": "a port",
    "runpod_instance_types": "a list such as ['8x NVIDIA H200'], in order of preference",
    "runpod_data_centers": "a list of data centers, in order of preference",
    "runpod_endpoint": "https only, for the key goes there",
    "runpod_disk_gb": "a whole number of GB, 1 or more",
    "runpod_volume_gb": f"a whole number of GB from {VOLUME_GB[0]} to {VOLUME_GB[-1]}",
    "runpod_volume_path": "an absolute path below /, such as /workspace",
    "runpod_adopt": "true or false",
    "runpod_remove_volume": "true or false",
    "runpod_replace_cluster": "true or false",
    "runpod_owner": "at most 128 letters, digits and . @ : + _ -, such as team-a",
    "runpod_spend_limit": "a number of US dollars an hour, 0 where it is not to be checked",
    "runpod_request_seconds": "a number of seconds",
}
