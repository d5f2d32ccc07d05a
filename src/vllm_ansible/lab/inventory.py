"""Write the inventory of a lab: the same names and groups that any site has."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .paths import LabPaths
from .record import Record

HEADER = "# Written by `python -m vllm_ansible.lab up`, removed by `down`; changes here are lost.\n"


def inventory_data(
    record: Record, paths: LabPaths, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the inventory as data; its paths follow the inventory directory."""
    state = "{{ inventory_dir }}/" + os.path.relpath(paths.state, paths.inventory)
    front = record.networks[0].role
    second = len(record.networks) > 1
    plane = {"data_plane_network": record.data_network.subnet} if second else {}
    return {
        "all": {
            "children": {
                "gpu": {
                    "hosts": {
                        host.name: {"ansible_host": host.addresses[front]} for host in record.hosts
                    }
                }
            },
            "vars": {
                "ansible_user": "root",
                "ansible_python_interpreter": "/usr/bin/python3",
                "ansible_ssh_private_key_file": f"{state}/{paths.key.name}",
                "ansible_ssh_common_args": (
                    f"-o 'UserKnownHostsFile=\"{state}/{paths.known_hosts.name}\"'"
                    " -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
                ),
                **plane,
                "sources_environment": dict(sorted(environment.items())),
            },
        }
    }


def inventory_file(paths: LabPaths) -> Path:
    """Return the file that a lab writes."""
    return paths.inventory / "hosts.yml"


def write_inventory(record: Record, paths: LabPaths, environment: Mapping[str, str]) -> None:
    """Write hosts.yml; an address in it may hold a password, so only its owner may read it."""
    target = inventory_file(paths)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = HEADER + yaml.safe_dump(
        inventory_data(record, paths, environment), sort_keys=False, width=1000
    )
    if not target.exists() or target.read_text() != text:
        target.touch(mode=0o600)
        target.chmod(0o600)
        target.write_text(text)


def remove_inventory(record: Record) -> None:
    """Remove the file that this lab wrote."""
    if record.inventory:
        Path(record.inventory).unlink(missing_ok=True)
