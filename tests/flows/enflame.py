"""The shipped inventory for Enflame on two lab hosts with stand-in devices and real containers."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.emulators.cpu_image import write_image, write_packages
from vllm_ansible.lab import Lab
from vllm_ansible.lab.cache import MOUNT
from vllm_ansible.lab.commands import podman
from vllm_ansible.lab.image import ensure_image
from vllm_ansible.lab.lab import silent

from .clone import REPOSITORY, Clone, Ran

HOSTS = 2
EMULATORS = REPOSITORY / "tests/emulators/enflame"
# Containers in containers: overlays do not stack, so images lie on the shared file system.
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "/opt/vllm-ansible/containers"
runroot = "/run/containers"
"""
# runc finds no place for control groups of the first version, which this machine may have, here.
ENGINE = """\
[containers]
volumes = ["/sys/fs/cgroup:/sys/fs/cgroup:ro"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def _written(name: str, text: str) -> str:
    """Return the hook that writes a setting of podman into the hosts' image."""
    return f"printf '{text}' > $1/etc/containers/{name}".replace("\n", "\\n")


SETUP = (
    "install -d $1/etc/containers",
    _written("storage.conf", STORAGE),
    _written("containers.conf", ENGINE),
)
IMPORTS = {
    "vllm": """
import torch, vllm, vllm.entrypoints.cli.serve, vllm.entrypoints.openai.api_server
import vllm.v1.engine.core, vllm.v1.worker.cpu_worker, vllm.v1.executor.multiproc_executor
import vllm.model_executor.models.deepseek_v2, uvicorn, xgrammar
""",
    "stand-in": "import torch, transformers, vllm.server, vllm.entrypoints.cli.main",
}
PACKAGES = ("podman", "runc", "conmon", "catatonit", "haproxy")
MODEL = "random:deepseek-v3"
SMALL = {
    "max_model_len": 256,
    "max_num_seqs": 2,
    "dtype": "float32",
    "attention_backend": "CPU_MLA",
    "enforce_eager": True,
}
CLUSTER_DIR = "/opt/vllm-ansible/r1"
# Asks so often at least, and until so many ranks have answered; says which did how often. A rank
# that is given no time is passed over for a while, and asked again once it answers.
ASK = """
import json, sys, time, urllib.request
url, key = sys.argv[1], open(sys.argv[2]).read().strip()
# Random weights end an answer at any token, were it not for these two.
asked = {"model": sys.argv[3], "prompt": "Paris", "max_tokens": 4}
body = json.dumps({**asked, "temperature": 0, "ignore_eos": True}).encode()
seen, wanted, least = [], int(sys.argv[4]), int(sys.argv[5])
end = time.monotonic() + 300
while len(seen) < least or (len(set(seen)) < wanted and time.monotonic() < end):
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(url + "/completions", body, headers), timeout=120
    ) as said:
        assert json.load(said)["usage"]["completion_tokens"] == 4
        seen.append(said.headers["X-Rank"])
print(json.dumps(seen))
"""


class Enflame:
    """Two hosts of Enflame's devices, and the clone that operates them.

    engine: what the image serves with, `vllm`, or `stand-in` in its place.
    """

    def __init__(self, directory: Path, ranks_a_host: int, engine: str = "vllm") -> None:
        self.engine = engine
        self.directory = directory
        self.ranks_a_host = ranks_a_host
        self.clone = Clone(directory / "clone")
        self.inventory = self.clone.directory / "inventories/enflame"
        self.lab = Lab.create(
            hosts=HOSTS,
            name="enflame-test",
            second_network=True,
            inventory=self.inventory,
            packages=PACKAGES,
            setup=SETUP,
            root=directory,
        )
        self.packages = self.lab.cache.host_directory(self.lab.record.token, "engine")
        self.tar = directory / "ubuntu2204_llm.tar"

    def equip(self) -> None:
        """Give the hosts devices and an image, and write the inventory."""
        # Last of all it is written, so a lab that is kept has all of it.
        if not self.tar.exists():
            for host in self.hosts:
                self._show_devices(host)
            write_packages(self.packages, self.engine)
            imports = IMPORTS[self.engine]
            # Containers may not write there: what engines import is compiled once, for all.
            self.run_on("lab1", "env", f"PYTHONPATH={self.mounted}", "python3", "-c", imports)
            base = ensure_image(silent)
            write_image(self.tar, base, self.mounted, self.ranks_a_host, self.engine)
        self.write()

    @property
    def ranks(self) -> int:
        """How many there are on all hosts."""
        return HOSTS * self.ranks_a_host

    @property
    def mounted(self) -> Path:
        """Where hosts see the engine's packages."""
        return MOUNT / self.packages.relative_to(self.lab.cache.root)

    @property
    def hosts(self) -> list[str]:
        return [one.name for one in self.lab.record.hosts]

    def _show_devices(self, host: str) -> None:
        """Give a host devices on its bus and a driver that is loaded, all of it stand-ins."""
        place = "/srv/emulated-enflame"
        container = self.lab.record.host(host).container
        self.run_on(host, "mkdir", "-p", place)
        podman("cp", f"{EMULATORS}/.", f"{container}:{place}")
        self.run_on(host, f"{place}/enflame_host.sh", "on", str(self.ranks_a_host))
        self.run_on(host, f"{place}/driver.run", "--no-auto-load", "--peermem", "-y")
        self.run_on(host, "/usr/local/sbin/modprobe", "enflame")
        for number in range(self.ranks_a_host):
            self.run_on(host, "mknod", "-m", "666", f"/dev/gcu{number}", "c", "1", "3")

    def write(self, **engine: Any) -> None:
        """Write what differs between the shipped inventory and this lab."""
        shipped = yaml.safe_load((self.inventory / "group_vars/all.yml").read_text())
        (declared,) = shipped["engines"]
        arguments = {**SMALL, "kv_cache_memory_bytes": 1 << 26, "enable_expert_parallel": False}
        layout = {"data": self.ranks, "tensor": 1}
        values = {
            "accelerator_count": self.ranks_a_host,
            # A container without CAP_SYS_RESOURCE has no more locked memory to give.
            "system_limits": "skip",
            # Processors would take minutes for the bytes at which devices are judged.
            "collectives_bytes": 1 << 20,
            # Ranks that step for the questions of the watch alone would leave no core to others.
            "router_quiet_seconds": 3,
            # What the role takes where engines compute on processors, as these do.
            "router_answer_seconds": 30,
            # Ranks of a mixture of experts on two cores take long for each step.
            "benchmark_requests": 4,
            "benchmark_concurrency": 2,
            "benchmark_input_tokens": 64,
            "benchmark_output_tokens": 8,
            # Nor do they carry all pairs of ranks of a host equally.
            "verify_accept": ["memlock", "cards", *(f"bandwidth@{host}" for host in self.hosts)],
            "data_plane_network": self.lab.record.data_network.subnet,
            "engine_image_file": str(self.tar),
            "engine_image_sha256": hashlib.sha256(self.tar.read_bytes()).hexdigest(),
            "engine_image_mounts": [str(self.mounted)],
            # Numbers of a stand-in are made up.
            **({"vllm_reference_gib": 0} if self.engine == "stand-in" else {}),
            "engines": [
                {**declared, "model": MODEL, "layout": layout, "vllm_args": arguments, **engine}
            ],
        }
        # Variables of a group win over those of all, which stay as they are shipped.
        (self.inventory / "group_vars/gpu.yml").write_text(yaml.safe_dump(values))

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.clone.run(self.inventory, *arguments, playbook=playbook)

    def run_on(self, host: str, *argv: str) -> str:
        """Run a command on a host as root and return what it printed."""
        return self.lab.run(host, argv).stdout

    def containers(self) -> dict[str, dict[str, str]]:
        """Return the id of each running container on each host, by name."""
        found = {}
        for host in self.hosts:
            told = json.loads(self.run_on(host, "podman", "ps", "--format", "json"))
            found[host] = {one["Names"][0]: one["Id"] for one in told}
        return found

    def answers(self, url: str, ranks: int = 0) -> Counter[str]:
        """Return how often each rank answered, by the name that the router gives it.

        ranks: how many are to answer, the others not once in forty times.
        """
        key = f"{CLUSTER_DIR}/secrets/api_key"
        most = (str(ranks), "40") if ranks else (str(self.ranks), "9")
        argv = ["python3", "-c", ASK, url, key, "deepseek-v3", *most]
        return Counter(json.loads(self.run_on("lab2", *argv)))

    def down(self) -> None:
        """Leave nothing."""
        self.lab.down()
        shutil.rmtree(self.packages, ignore_errors=True)
