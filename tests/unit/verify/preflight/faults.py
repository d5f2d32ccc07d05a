"""One fault each of a host in good health, and what has to be said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm_ansible.verify.preflight.check import FAIL, WARN, Row

GIB = 1 << 30
Tree = dict[str, Any]


def put(path: str, value: Any) -> Callable[[Tree], None]:
    """Return a change of one value in a look; dots lead to it."""

    def change(tree: Tree) -> None:
        *above, last = path.split(".")
        for name in above:
            tree = tree[int(name) if isinstance(tree, list) else name]
        tree[last] = value

    return change


def both(*changes: Callable[[Tree], None]) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        for one in changes:
            one(tree)

    return change


def efa(tree: Tree) -> None:
    tree["rdma"] = {"efa_0": {"efa": True, "ports": {"1": {**PORT, "link_layer": "Unspecified"}}}}


PORT = {
    "state": "ACTIVE",
    "physical": "LinkUp",
    "link_layer": "InfiniBand",
    "rate": "400 Gb/sec (4X NDR)",
    "errors": {},
}
XID = {
    "readable": True,
    "errors": [
        {
            "kind": "Xid",
            "pci": "0000:06:00",
            "code": 79,
            "times": 2,
            "meaning": "GPU has fallen off the bus",
            "verdict": "reboot",
        }
    ],
    "verdict": "reboot",
}
MIB = 1 << 20
# The check, what is broken on the second of three hosts, the verdict, and what is said of it.
BROKEN = [
    ("python", put("system.python", "3.8.10"), FAIL, "3.8.10 on n2"),
    ("python", put("system.python", "3.12.4"), WARN, "3.12.4 on n2"),
    ("glibc", put("system.glibc", "2.27"), FAIL, "2.27"),
    ("glibc", put("system.glibc", ""), FAIL, "another C library"),
    ("driver", put("devices.driver", "570.1"), FAIL, "570.1 on n2"),
    ("cuda", put("devices.cuda", "12.8"), FAIL, "12.8"),
    ("firmware", put("devices.devices.0.firmware", "96.0"), WARN, "96.0 on n2 device 0"),
    ("compiler", put("system.compiler", ""), FAIL, "a C compiler"),
    ("compiler", put("system.headers", False), FAIL, "headers of Python 3.12.3"),
    (
        "kernel_compiler",
        put("kernels.tools.chat.nvcc", ""),
        FAIL,
        "chat finds no nvcc (CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda)",
    ),
    ("kernel_compiler", put("kernels.tools.chat.ninja", ""), FAIL, "chat finds no ninja (PATH)"),
    (
        "kernel_compiler",
        both(put("kernels.tools.chat.nvcc", ""), put("kernels.installed.vllm", "0.19.1")),
        WARN,
        "chat finds no nvcc",
    ),
    ("clock", put("system.clock_synchronised", False), WARN, "unsynchronised"),
    (
        "page_size",
        both(put("system.architecture", "aarch64"), put("system.page_size", 65536)),
        WARN,
        "64 KiB",
    ),
    ("devices", lambda tree: tree["devices"]["devices"].pop(), FAIL, "1 of 1 answer"),
    ("devices", put("devices.error", "Driver/library version mismatch"), FAIL, "mismatch"),
    ("compute", put("devices.devices.1.compute", "8.0"), FAIL, "8.0 on n2 device 1"),
    ("device_memory", put("devices.devices.1.memory.free", GIB), FAIL, "device 1: 1.0 GiB of"),
    ("xid", put("devices.kernel_log", XID), FAIL, "Xid 79 on 0000:06:00, 2 times"),
    ("nvlinks", put("devices.devices.0.nvlinks.3.active", False), FAIL, "device 0: 17 of 18"),
    ("fabric", put("devices.devices.1.fabric.state", "in progress"), FAIL, "device 1: in progress"),
    ("device_errors", put("devices.devices.0.remapped_rows.pending", 1), FAIL, "pending"),
    (
        "device_errors",
        put("devices.devices.0.ecc_errors.uncorrected_since_boot", 3),
        WARN,
        "3 uncorrected",
    ),
    ("memlock", put("limits.memlock", 8 * MIB), FAIL, "8 MiB, in a service of systemd"),
    ("memlock", put("limits", {"error": "systemd-run: no"}), FAIL, "systemd-run: no"),
    ("nofile", put("limits.nofile", 4095), FAIL, "4095"),
    ("nofile", put("limits.nofile", 4096), WARN, "4096"),
    ("shm", put("memory.shared.free", 64 * MIB), FAIL, "0.1 GiB free"),
    ("hugepages", efa, FAIL, "0 pages"),
    ("host_memory", put("memory.strangers.bytes", 1500 * GIB), WARN, "1500.0 GiB of 2000.0"),
    ("hostname", put("data_plane.resolves_to", ["127.0.1.1"]), FAIL, "n2: 127.0.1.1"),
    ("hostname", put("data_plane.resolves_to", ["10.0.0.2", "::1"]), FAIL, "::1"),
    ("hostname", put("data_plane.resolves_to", []), FAIL, "does not resolve"),
    ("hostname", put("data_plane.resolves_to", None), FAIL, "no answer in time"),
    ("address", put("data_plane.addresses", ["192.168.0.2"]), FAIL, "192.168.0.2 on eth1"),
    ("link", put("data_plane.interface.state", "down"), FAIL, "down"),
    ("link", put("data_plane.interface.carrier", False), FAIL, "no carrier"),
    ("link", put("data_plane.interface", None), FAIL, "no interface eth1"),
    (
        "routes",
        put("data_plane.routes.n3", {"source": "10.0.0.2", "interface": "eth0"}),
        FAIL,
        "n3: eth0",
    ),
    (
        "routes",
        put("data_plane.routes.n3", {"source": "10.9.9.9", "interface": "eth1", "gateway": "1.1"}),
        FAIL,
        "from 10.9.9.9 by 1.1",
    ),
    ("routes", put("data_plane.routes.n3", {"error": "unreachable"}), FAIL, "n3: unreachable"),
    ("mtu", put("data_plane.interface.mtu", 1500), FAIL, "1500 on n2"),
    ("speed", put("data_plane.interface.speed", 25000), FAIL, "25000 Mbit/s on n2"),
    ("link_errors", put("data_plane.interface.counters.rx_errors", 7), WARN, "rx_errors 7"),
    ("hca_state", put("rdma.mlx5_1.ports.1.state", "DOWN"), FAIL, "mlx5_1/1 DOWN"),
    ("hca_state", lambda tree: tree["rdma"].pop("mlx5_1"), FAIL, "mlx5_1/1 is missing"),
    ("hca_rate", put("rdma.mlx5_1.ports.1.rate", "100 Gb/sec (4X EDR)"), FAIL, "100 Gb/sec"),
    ("hca_rate", put("rdma.mlx5_1.ports.1.link_layer", "Ethernet"), FAIL, "Ethernet"),
    ("hca_errors", put("rdma.mlx5_0.ports.1.errors.symbol_error", 12), WARN, "symbol_error 12"),
    ("efa", both(put("system.product", "p5en.48xlarge"), efa), FAIL, "1"),
    (
        "peer_memory",
        put("devices.peer_memory", {"module": False, "open": False}),
        FAIL,
        "not loaded",
    ),
    ("disk", put("storage.cluster.free", GIB), FAIL, "1.0 GiB of 1000.0 GiB at /opt/c"),
    ("inodes", put("storage.cluster.inodes_free", 10), FAIL, "10 of 1000000 at /opt/c"),
    (
        "write",
        put("storage.models.write", {"user": "", "step": "flock", "error": "No locks available"}),
        FAIL,
        "flock as the login in /opt/c/models: No locks available",
    ),
    (
        "jit_cache",
        both(put("storage.cache chat.network", True), put("storage.cache chat.kind", "nfs4")),
        FAIL,
        "/opt/c/engines/chat/cache on nfs4",
    ),
]


# The same of a host with Enflame devices.
ENFLAME = [
    ("driver", put("devices.driver", "1.4.3.4"), FAIL, "1.4.3.4 on n2"),
    (
        "toolkit",
        put("devices.toolkit.efsmi", "1.4.3.4"),
        FAIL,
        "efsmi 1.4.3.4, enflame-container-toolkit 2.0.50 on n2",
    ),
    ("toolkit", put("devices.toolkit", {}), FAIL, "none on n2"),
    ("devices", lambda tree: tree["devices"]["devices"].pop(), FAIL, "1 answer"),
    (
        "devices",
        both(put("devices.devices", []), put("devices.error", "efsmi does not answer")),
        FAIL,
        "efsmi does not answer",
    ),
    ("device_errors", put("devices.devices.1.ecc_errors.double", 2), FAIL, "2 double-bit errors"),
    (
        "device_errors",
        put("devices.devices.1.double_bit_ever", 1.0),
        FAIL,
        "1 double-bit errors in",
    ),
    ("device_errors", put("devices.devices.0.replace", True), FAIL, "RMA"),
    ("device_errors", put("devices.devices.0.told_healthy", False), FAIL, "not healthy"),
    ("device_errors", put("devices.devices.0.ecc_errors.single", 7), WARN, "7 corrected"),
    ("device_errors", put("devices.devices.0.ecc", False), WARN, "ECC is off"),
    ("device_link", put("devices.devices.1.link.width", 8), FAIL, "(0000:b1:00.0): x8 of x16"),
    ("device_link", put("devices.devices.1.link.width", 0), FAIL, "x0 of x16"),
    ("device_link", put("devices.devices.1.link.generation", 3), WARN, "Gen3 of Gen5"),
    ("device_temperature", put("devices.devices.0.temperature", 96.0), FAIL, "device 0: 96"),
    ("device_memory", put("devices.devices.1.memory.free", GIB), FAIL, "device 1: 1.0 GiB of"),
    ("peer_memory", put("devices.peer_memory", {"enflame": False}), FAIL, "not loaded"),
]


def of(rows: list[Row], check: str, host: str = "n2") -> Row:
    """Return the row of a check that names a host, or that holds everywhere."""
    (row,) = [one for one in rows if one.check == check and (host in one.host or "all" in one.host)]
    return row
