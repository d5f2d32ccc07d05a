"""A cluster on pods that an emulated RunPod rents out: hosts of a lab without systemd, over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.lab_pods import LabPods, pod_lab
from tests.emulators.runpod_account import Account
from tests.emulators.runpod_cloud import Cloud
from tests.emulators.runpod_parts import Cpu, Gpu
from tests.emulators.standin import environment

from .clone import Clone
from .rented_hosts import RentedHosts, hosts_of

KEY = "key-of-ann.0123456789"
PLACE, KIND = "US-KS-2", "1x NVIDIA H200"
USD = 3.5


@dataclass
class RentedRunpod(RentedHosts):
    """The same, at RunPod."""

    plugin = ("runpod.yml", "runpod_pods")

    cloud: Cloud
    pods: LabPods

    def inside(self, *words: str, ranks: int | None = None) -> list[str]:
        """Return what a command prints on each pod, or the first ones, by its rank."""
        ranked = sorted(self.cloud.account.pods.values(), key=lambda one: one.rank)[:ranks]
        names = [self.machines.rented[one.id] for one in ranked]
        return [self.lab.run(name, words).stdout for name in names]


@contextmanager
def rented_runpod(directory: Path, engine: str = "vllm") -> Iterator[RentedRunpod]:
    """Make a lab, a RunPod that rents its hosts out, and a clone; nothing of them stays behind."""
    root = directory / "lab"
    with pod_lab(2, "rented-runpod-test", root) as lab:
        pods = LabPods(lab, root)
        account = Account(
            [Gpu("NVIDIA H200", USD, {PLACE: 2})],
            {PLACE: ["STANDARD"]},
            machines=pods,
            cpus=[Cpu("cpu3c", 0.03, {PLACE: 8})],
        )
        clone = Clone(directory / "clone")
        with Cloud(account, KEY) as cloud:
            key = directory / "runpod-key"
            key.write_text(KEY)
            key.chmod(0o600)
            variables = {
                "cluster_name": "r1",
                "runpod_api_key_file": str(key),
                "runpod_ssh_public_key_file": str(lab.paths.key.with_suffix(".pub")),
                "runpod_instance_types": [KIND],
                "runpod_data_centers": [PLACE],
                "runpod_volume": "r1",
                "runpod_volume_gb": 1024,
                "runpod_endpoint": cloud.url,
                "runpod_request_seconds": 0.1,
                "node_count": 2,
                "max_usd_per_hour": 2 * USD,
                **hosts_of(lab),
            }
            if engine == "stand-in":
                variables |= environment(directory / "engine")
            inventory = clone.directory / "inventories" / "pods"
            made = RentedRunpod(lab, pods.machines, clone, inventory, variables, cloud, pods)
            try:
                yield made
            finally:
                pods.close()
            assert cloud.misfits == []
