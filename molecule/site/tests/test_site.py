"""What every later role believes of a host is what the host itself says."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host


@pytest.fixture
def facts(name: str) -> dict[str, Any]:
    path = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_machine_is_described_as_it_is(host: Host, facts: dict[str, Any]) -> None:
    assert facts["cores"] == int(host.check_output("nproc"))
    assert facts["architecture"] == host.check_output("uname -m")
    assert facts["boot_id"] == host.file("/proc/sys/kernel/random/boot_id").content_string.strip()
    memory = host.check_output("awk '/^MemTotal/ {print $2}' /proc/meminfo")
    assert facts["memory_bytes"] == int(memory) * 1024
    assert facts["distribution"] == host.system_info.distribution
    assert facts["distribution_version"] == host.system_info.release
    assert facts["disk_free_bytes"] > 0
    assert facts["accelerator"] == "cpu"


def test_the_data_plane_is_not_where_the_default_route_leads(
    host: Host, name: str, facts: dict[str, Any], data_addresses: dict[str, str]
) -> None:
    assert facts["address"] == data_addresses[name]
    assert facts["interface"] == "eth1"
    assert "dev eth0" in host.check_output("ip route show default")
    assert facts["address"] != host.ansible.get_variables()["ansible_host"]


def test_root_and_systemd_are_used_unless_the_inventory_says_otherwise(
    host: Host, name: str, facts: dict[str, Any]
) -> None:
    assert host.check_output("id -u") == "0"
    assert host.file("/proc/1/comm").content_string == "systemd\n"
    assert (facts["privileges"], facts["service_user"]) == ("root", "vllm-molecule")
    assert facts["supervisor"] == {"lab1": "systemd", "lab2": "supervisord"}[name]
    assert facts["cluster_dir"] == "/opt/vllm-ansible/molecule"
    assert facts["run_dir"] == "/run/vllm-molecule"


def test_the_head_alone_says_who_holds_the_cluster(host: Host, name: str, cluster_dir: str) -> None:
    lock = host.file(f"{cluster_dir}/lock.json")
    assert lock.exists is (name == "lab1")
    if lock.exists:
        held = json.loads(lock.content_string)
        assert held["holder"]["host"] == socket.gethostname()
        # The name of its record, and what tells it from a run elsewhere that has the same name.
        runs = os.listdir(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "runs")
        assert any(held["run"].startswith(f"{one}-") for one in runs), (held["run"], runs)
