"""What the flows share whose machines an emulated cloud rents out: hosts of a lab, over SSH."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tests.emulators.lab_machines import LabMachines
from vllm_ansible.lab import Lab
from vllm_ansible.lab.inventory import inventory_file

from .clone import Clone, Ran, Running


@dataclass
class RentedHosts:
    """The machines that a cloud rents out, and the clone that rents them."""

    # Of the inventory plugin: its file, and its name.
    plugin: ClassVar[tuple[str, str]]

    lab: Lab
    machines: LabMachines
    clone: Clone
    inventory: Path
    variables: dict[str, Any]

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        """Write the inventory as a user has it, a line for the plugin and variables; start."""
        file, name = self.plugin
        (self.inventory / "group_vars").mkdir(parents=True, exist_ok=True)
        (self.inventory / file).write_text(f"plugin: {name}\n")
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        return self.clone.start(self.inventory, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.start(*arguments, playbook=playbook).result()


def hosts_of(lab: Lab, model: str = "package:smollm2-135m-instruct") -> dict[str, Any]:
    """Return what hosts of a lab are and machines of a cloud are not, and an engine over two."""
    written = yaml.safe_load(inventory_file(lab.paths).read_text())["all"]["vars"]
    return {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(lab.paths.key),
        "sources_environment": written["sources_environment"],
        "accelerator": "cpu",
        "accelerator_count": 1,
        "accelerator_model": "",
        "engines": [
            {
                "name": "chat",
                "model": model,
                "nodes": 2,
                "vllm_args": {"enforce_eager": True, "max_model_len": 2048, "dtype": "float32"},
                "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
            }
        ],
    }
