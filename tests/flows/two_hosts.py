"""One cluster over two hosts of a lab, and the clone that operates it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vllm_ansible.lab import Lab

from .clone import Clone, Ran, Running

CLUSTER_DIR = "/opt/vllm-ansible/demo"
# What the programs below run with: the standard library of a host.
PYTHON = "/usr/bin/python3"
# Every process that was started for a record of the cluster, and its descendants.
PROCESSES = """
import json, os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            if b"VLLM_ANSIBLE_PROCESS=" in handle.read():
                with open(f"/proc/{pid}/stat") as stat:
                    found.append([int(pid), stat.read().rpartition(")")[2].split()[19]])
    except OSError:
        pass
print(json.dumps(sorted(found)))
"""
# Every TCP port of some addresses that accepts a connection from here.
SCAN = """
import json, socket, sys
found = []
for place in [(address, port) for address in sys.argv[1:] for port in range(1, 65536)]:
    with socket.socket() as one:
        one.settimeout(60)
        if one.connect_ex(place) == 0:
            found.append(place)
print(json.dumps(found))
"""


class TwoHosts:
    """A served, or not yet served, cluster `demo` of the shipped inventory on two lab hosts."""

    def __init__(self, directory: Path) -> None:
        self.clone = Clone(directory / "clone")
        self.inventory = self.clone.directory / "inventories" / "lab"
        self.lab = Lab.create(
            hosts=2,
            name="flow-test",
            second_network=True,
            inventory=self.inventory,
            root=directory,
        )

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        return self.clone.start(self.inventory, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.clone.run(self.inventory, *arguments, playbook=playbook)

    def python(self, host: str, program: str, *arguments: str, interpreter: str = PYTHON) -> Any:
        """Return what a program prints as JSON on a host."""
        ran = self.lab.run(host, [interpreter, "-c", program, *arguments], timeout=1200)
        return json.loads(ran.stdout)

    def processes(self) -> dict[str, list[list[Any]]]:
        """Return number and start time of the cluster's processes on each host."""
        return {host.name: self.python(host.name, PROCESSES) for host in self.lab.record.hosts}

    @property
    def plan(self) -> dict[str, Any]:
        found = json.loads(self.lab.run("lab1", ["cat", f"{CLUSTER_DIR}/plan.json"]).stdout)
        return {engine["name"]: engine for engine in found["engines"]}

    @property
    def engine_python(self) -> str:
        """The Python that the engines were started from."""
        path = f"{CLUSTER_DIR}/processes/chat-ray.json"
        ray = json.loads(self.lab.run("lab1", ["cat", path]).stdout)["argv"][0]
        return str(Path(ray).with_name("python"))
