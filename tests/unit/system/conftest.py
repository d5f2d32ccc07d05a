"""A host that lacks nothing, to take things from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.system.judge import Judgement, judge
from vllm_ansible.system.wants import CONCERNS, Wants

GOOD_HOSTS = "127.0.0.1 localhost\n10.0.0.1 one\n10.0.0.2 two\n"


def interface(name: str, address: str, **more: Any) -> dict[str, Any]:
    return {
        "interface": name,
        "address": address,
        "prefix": 24,
        "network": address.rpartition(".")[0] + ".0/24",
        "kind": "physical",
        "mtu": 1500,
        "speed": 10_000,
        "hardware": "02:00:00:00:00:01",
        "path_filter": 0,
        **more,
    }


@pytest.fixture
def want() -> Wants:
    return Wants(
        name="one",
        cluster="demo",
        root=True,
        systemd=True,
        accelerator="nvidia",
        accelerator_count=8,
        address="10.0.0.1",
        interface="eth1",
        distribution="ubuntu",
        peers={"two": "10.0.0.2"},
        first_port=20000,
    )


@pytest.fixture
def look() -> dict[str, Any]:
    whole = [1048576, 1048576]
    without = [-1, -1]
    return {
        "container": False,
        "devices": [
            {
                "name": "mlx5_0",
                "driver": "mlx5_core",
                "ports": [{"link_layer": "InfiniBand", "state": "ACTIVE", "gid_types": []}],
            }
        ],
        "limits": {
            "login": {"nofile": whole, "memlock": without},
            "units": {"nofile": whole, "memlock": without},
            "settable": {"nofile": 1048576, "memlock": -1},
        },
        "hugepages": {"page_kib": 2048, "pages": 0, "available_kib": 1 << 30, "processors": 96},
        "efa": {
            **{"machine": "", "cards": 0, "on_the_bus": 0, "installer": ""},
            **{"libfabric": "", "plugin": "", "domains": None},
        },
        "hosts_file": {
            "name": "one",
            "addresses": ["10.0.0.1"],
            "hosts_file": GOOD_HOSTS,
            "rewritten_at_boot": False,
        },
        "time": {"synchronised": True, "daemons": ["chronyd"], "settable": True},
        "network": {
            "interfaces": [interface("eth0", "192.168.0.1"), interface("eth1", "10.0.0.1")],
            "sysctls": {
                "net.core.rmem_max": [212992],
                "net.core.wmem_max": [212992],
                "net.ipv4.tcp_rmem": [4096, 131072, 6291456],
                "net.ipv4.tcp_wmem": [4096, 16384, 4194304],
            },
            "modules": {"ib_uverbs": True, "rdma_ucm": True},
            "verbs": True,
            "iommu": False,
            "iommu_passthrough": False,
            "redirecting_bridges": [],
        },
        "firewall": {
            "kind": "nftables",
            "readable": True,
            "legacy": False,
            "ports": [20000, 60999],
            "refusals": {},
            "unmended": [],
        },
        "container_runtime": {
            "docker": True,
            "podman": False,
            "docker_control_groups": "cgroupfs",
            "docker_running": 0,
            "docker_settings": {},
            "toolkit": True,
            "device_lists": ["/etc/cdi/nvidia.yaml"],
        },
    }


@pytest.fixture
def judged(want: Wants) -> Callable[..., dict[str, Judgement]]:
    """Return the judgement of a look, every concern managed unless said otherwise."""

    def call(look: dict[str, Any], host: Wants = want, **modes: str) -> dict[str, Judgement]:
        return judge({**dict.fromkeys(CONCERNS, "manage"), **modes}, look, host)

    return call
