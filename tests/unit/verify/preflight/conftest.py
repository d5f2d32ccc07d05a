"""Clusters in good health to break one thing of: H200 devices as NVML showed them, the rest as
the kernel's formats have it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.verify.preflight.check import Cluster

DATA = Path(__file__).parent / "data"
GIB = 1 << 30


def place(path: str, point: str = "/", kind: str = "ext4", **more: Any) -> dict[str, Any]:
    return {
        "path": path,
        "there": True,
        "point": point,
        "kind": kind,
        "source": "/dev/sda1",
        "options": "rw,relatime",
        "network": False,
        "size": 1000 * GIB,
        "free": 500 * GIB,
        "inodes": 1000000,
        "inodes_free": 900000,
        "write": {"user": "vllm"},
        **more,
    }


def port(**more: Any) -> dict[str, Any]:
    errors = {"symbol_error": 0, "link_downed": 0, "port_rcv_errors": 0}
    return {
        "state": "ACTIVE",
        "physical": "LinkUp",
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec (4X NDR)",
        "errors": errors,
        **more,
    }


def look(number: int, kind: str) -> dict[str, Any]:
    name = f"n{number}"
    found: dict[str, Any] = {
        "system": {
            "kernel": "6.8.0",
            "architecture": "x86_64",
            "python": "3.12.3",
            "glibc": "2.39",
            "page_size": 4096,
            "product": "a server",
            "container": False,
            "virtual": False,
            "iommu": "passes",
            "clock_synchronised": True,
            "compiler": "/usr/bin/cc",
            "headers": True,
        },
        "limits": {"of": "a service of systemd", "memlock": None, "nofile": 65536},
        "memory": {
            "total": 2000 * GIB,
            "available": 1900 * GIB,
            "shared": {"total": 1000 * GIB, "free": 1000 * GIB},
            "huge_pages": {"2048": {"total": 0, "free": 0}},
            "strangers": {"bytes": GIB, "largest": []},
        },
        "data_plane": {
            "hostname": name,
            "resolves_to": [f"10.0.0.{number}"],
            "interface": {
                "state": "up",
                "carrier": True,
                "mtu": 9000,
                "speed": 100000,
                "counters": {"rx_packets": 5000, "tx_packets": 5000, "rx_errors": 0},
            },
            "addresses": [f"10.0.0.{number}"],
            "routes": {
                f"n{peer}": {"source": f"10.0.0.{number}", "interface": "eth1"}
                for peer in (1, 2, 3)
                if peer != number
            },
        },
        "rdma": {},
        "storage": {
            "cluster": place("/opt/c"),
            "models": place("/opt/c/models"),
            "sockets": place("/run/c", "/run", "tmpfs"),
            "cache chat": place("/opt/c/engines/chat/cache"),
        },
        "running": [],
    }
    if kind == "nvidia":
        found["devices"] = copy.deepcopy(json.loads((DATA / "h200.json").read_text())["idle"])
        found["kernels"] = {
            "installed": {"vllm": "0.32.0", "flashinfer-python": "0.7.0.post1"},
            "tools": {"chat": {"nvcc": "/usr/local/cuda/bin/nvcc", "ninja": "/opt/c/bin/ninja"}},
        }
        found["rdma"] = {f"mlx5_{one}": {"efa": False, "ports": {"1": port()}} for one in (0, 1)}
    if kind == "enflame":
        found["devices"] = {
            "driver": "1.2.4.12",
            "peer_memory": {"enflame": True},
            "toolkit": {"efsmi": "1.2.4.12", "enflame-container-toolkit": "2.0.50"},
            "devices": [gcu(0), gcu(1)],
        }
        found["rdma"] = {"mlx5_0": {"efa": False, "ports": {"1": port()}}}
    return found


def gcu(number: int) -> dict[str, Any]:
    """Return an idle S60 as enflame_devices tells it; figures of `efsmi -q` of 1.2.4.12."""
    return {
        "index": number,
        "name": "S60",
        "pci": f"0000:b{number}:00.0",
        "driver": "1.2.4.12",
        "memory": {"total": 42976 << 20, "used": 1129 << 20, "free": 41847 << 20},
        "link": {"width": 16, "most_width": 16, "generation": 5, "most_generation": 5},
        "temperature": 41.0,
        "told_healthy": True,
        "ecc": True,
        "replace": False,
        "double_bit_ever": 0.0,
        "ecc_errors": {"single": 0, "double": 0},
        "processes": [],
    }


def host(number: int, kind: str) -> dict[str, Any]:
    return {
        "name": f"n{number}",
        "address": f"10.0.0.{number}",
        "interface": "eth1",
        "accelerator": kind,
        "accelerator_count": 1 if kind == "cpu" else 2,
        "accelerators": {"driver_version": ""},
        "supervisor": "systemd",
        "privileges": "root",
        "distribution": "ubuntu",
        "cluster_dir": "/opt/c",
        "models_dir": "/opt/c/models",
        "run_dir": "/run/c",
        "service_user": "vllm",
    }


def cluster(hosts: int = 3, kind: str = "nvidia", **more: Any) -> Cluster:
    engines = more.pop("engines", [{"name": "chat"}])
    return Cluster(
        hosts={f"n{one}": host(one, kind) for one in range(1, hosts + 1)},
        looks={f"n{one}": look(one, kind) for one in range(1, hosts + 1)},
        engines=engines,
        cuda=more.pop("cuda", "13.0"),
    )


@pytest.fixture
def healthy() -> Callable[..., Cluster]:
    """Return clusters in which nothing fails or warns."""
    return cluster


@pytest.fixture
def h200() -> Any:
    """Return what NVML showed of two idle H200, and of the same with a stranger on one."""
    return json.loads((DATA / "h200.json").read_text())
