"""What the kernel and the system write is read as it is; trees as their formats have them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher
from vllm_ansible.node.preflight import data_plane, devices, kernels, memory, ours, rdma, system
from vllm_ansible.node.system import storage
from vllm_ansible.verify.preflight.request import request


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_cards_are_read_as_the_kernel_lists_them(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    files = {
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/phys_state": "5: LinkUp\n",
        f"{port}/link_layer": "InfiniBand\n",
        f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/counters/symbol_error": "3\n",
        f"{port}/counters/link_downed": "0\n",
        "sys/class/infiniband/mlx5_0/device/vendor": "0x15b3\n",
        "sys/class/infiniband/efa_0/device/vendor": "0x1d0f\n",
        "sys/class/infiniband/efa_0/device/device": "0xefa2\n",
        "sys/class/infiniband/efa_0/ports/1/state": "4: ACTIVE\n",
    }
    found = rdma.look(tree(tmp_path, files))
    assert found["mlx5_0"] == {
        "efa": False,
        "ports": {
            "1": {
                "state": "ACTIVE",
                "physical": "LinkUp",
                "link_layer": "InfiniBand",
                "rate": "400 Gb/sec (4X NDR)",
                "errors": {"symbol_error": 3, "link_downed": 0},
            }
        },
    }
    assert found["efa_0"]["efa"] and found["efa_0"]["ports"]["1"]["errors"] == {}
    assert rdma.look(tmp_path / "none") == {}


def test_an_interface_is_read_with_what_it_tells(tmp_path: Path) -> None:
    top = "sys/class/net/eth1"
    files = {f"{top}/mtu": "9000\n", f"{top}/operstate": "up\n", f"{top}/carrier": "1\n"}
    files |= {f"{top}/speed": "-1\n", f"{top}/statistics/rx_errors": "4\n"}
    found = data_plane.interface("eth1", tree(tmp_path, files))
    assert found is not None
    assert (found["mtu"], found["state"], found["carrier"]) == (9000, "up", True)
    assert found["speed"] is None and found["counters"]["rx_errors"] == 4
    assert data_plane.interface("eth7", tmp_path) is None


def test_the_kernel_tells_the_way_to_an_address() -> None:
    assert data_plane.route("127.0.0.1") == {"source": "127.0.0.1", "interface": "lo"}


def test_a_name_that_nobody_knows_or_answers_for_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_plane, "RESOLVE_SECONDS", 120.0)
    assert data_plane.resolved("localhost") in (["127.0.0.1"], ["::1"], ["127.0.0.1", "::1"])

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert data_plane.resolved("nowhere") == []
    monkeypatch.setattr(data_plane, "RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60) or [])
    assert data_plane.resolved("slow") is None


MOUNTS = """\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard
30 22 0:25 / /mnt/a\\040b rw,relatime - tmpfs tmpfs rw,size=64k
31 22 0:50 / /srv/models rw,relatime shared:9 - nfs4 s:/m rw,vers=4.2,soft,local_lock=none
32 22 0:51 / /srv/models rw,relatime shared:9 - nfs4 s:/n rw,vers=4.2,hard,local_lock=none
"""


def test_a_path_lies_on_what_was_mounted_last_nearest_above_it(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    mounted = storage.mounts(str(tmp_path / "mountinfo"))
    assert storage.mount_of("/srv/models/x", mounted)["source"] == "s:/n"
    assert "vers=4.2,hard" in storage.mount_of("/srv/models", mounted)["options"]
    assert storage.mount_of("/srv/modelsx", mounted)["point"] == "/"
    assert storage.mount_of("/mnt/a b/c", mounted)["kind"] == "tmpfs"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "ceph", "fuse.sshfs", "cifs", "9p"])
def test_file_systems_of_others_are_known(kind: str) -> None:
    assert storage.NETWORK.fullmatch(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "tmpfs", "overlay", "fuse.lxcfs", "fuseblk"])
def test_file_systems_of_this_host_are_not_taken_for_others(kind: str) -> None:
    assert not storage.NETWORK.fullmatch(kind)


def test_a_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    found = storage.look({"models": f"{tmp_path}/a/b"}, {"models": None}, write=True)["models"]
    assert not found["there"] and found["write"] is None and found["size"] > 0


def test_memory_of_strangers_counts_and_ours_does_not(tmp_path: Path) -> None:
    size = os.sysconf("SC_PAGE_SIZE")
    files = {
        "proc/meminfo": "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n",
        "proc/4194305/statm": "900 300 100 1 0 200 0\n",
        "proc/4194306/statm": "900 700 100 1 0 200 0\n",
        "proc/4194307/statm": "0 0 0 0 0 0 0\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "5128\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "128\n",
    }
    root = tree(tmp_path, files)
    assert memory.meminfo(root) == {"total": 1024000, "available": 614400}
    assert memory.huge_pages(root) == {"2048": {"total": 5128, "free": 128}}
    found = memory.strangers({4194306}, root)
    assert found["bytes"] == 200 * size
    assert found["largest"][0] == {"pid": 4194305, "user": "", "command": "", "bytes": 200 * size}


def test_our_processes_are_known_by_what_marks_them_and_by_descent(tmp_path: Path) -> None:
    environment = {**os.environ, launcher.MARKER: f"{tmp_path}/processes/chat-serve.json"}
    program = "import subprocess, sys; subprocess.run(['sleep', '60'], env={})"
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        try:
            deadline = time.monotonic() + 120
            while len(found := ours.processes_of(str(tmp_path))) < 2:
                assert time.monotonic() < deadline
            assert process.pid in found
            assert ours.processes_of(f"{tmp_path}x") == set()
        finally:
            for pid in ours.processes_of(str(tmp_path)):
                os.kill(pid, 9)


def test_the_machine_type_is_what_the_firmware_says(tmp_path: Path) -> None:
    name = "sys/devices/virtual/dmi/id/product_name"
    found = system.look(tree(tmp_path, {name: "p5en.48xlarge\n"}))
    assert found["product"] == "p5en.48xlarge"
    assert found["glibc"].startswith("2.") and found["clock_synchronised"] in (True, False)


def test_what_joins_cards_and_devices_is_read_from_the_kernel(tmp_path: Path) -> None:
    assert devices.peer_memory(tmp_path) == {"module": False, "open": False}
    version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    root = tree(tmp_path, {"proc/driver/nvidia/version": version})
    (root / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert devices.peer_memory(root) == {"module": True, "open": True}


def test_without_a_driver_the_look_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.nvml, "LIBRARY", "libnothing.so.1")
    found = devices.look(set())
    assert found["error"] == "libnothing.so.1 is not installed" and found["devices"] == []


def test_everything_compiles_and_imports_on_the_oldest_python(node_python: str) -> None:
    package = Path(devices.__file__).parent
    names = sorted(path.stem for path in package.glob("*.py") if path.stem != "__init__")
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [node_python, "-c", program, *(f"vllm_ansible.node.preflight.{name}" for name in names)],
        env={"PYTHONPATH": str(package.parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_user_without_privileges_sees_all_that_does_not_need_them(
    module_as_nobody: Callable[..., Any], nobodys: Path
) -> None:
    asked = {
        "accelerator": "cpu",
        "cluster": "demo",
        "cluster_dir": str(nobodys),
        "run_dir": str(nobodys),
        "supervisor": "supervisord",
        "limits": {"nofile": "128"},
        "interface": "lo",
        "peers": {"me": "127.0.0.1"},
        "directories": {"cluster": str(nobodys), "system": "/etc"},
        "write_as": {"cluster": "", "system": ""},
    }
    found = module_as_nobody("preflight_info", asked)["look"]
    assert found["limits"]["nofile"] == 128 and found["memory"]["total"] > 0
    assert found["data_plane"]["routes"]["me"]["interface"] == "lo"
    assert found["storage"]["cluster"]["write"] == {"user": ""}
    assert found["storage"]["system"]["write"]["step"] == "create"
    checked = module_as_nobody("preflight_info", asked, check=True)["look"]
    assert checked["storage"]["cluster"]["write"] is None
    assert list(nobodys.iterdir()) == []


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_nvcc_is_looked_for_where_flashinfer_does(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    assert kernels.nvcc({"PATH": none}, usual=none) == ""
    usual = program(tmp_path / "usual/bin/nvcc")
    assert kernels.nvcc({"PATH": none}, usual=str(tmp_path / "usual")) == usual
    found = program(tmp_path / "path/bin/nvcc")
    path = {"PATH": f"{none}:{tmp_path}/path/bin"}
    assert kernels.nvcc(path, usual=str(tmp_path / "usual")) == found
    own = program(tmp_path / "own/bin/nvcc")
    assert kernels.nvcc({**path, "CUDA_PATH": str(tmp_path / "own")}) == own
    # A directory that was named and has none is not made up for by another one.
    assert kernels.nvcc({**path, "CUDA_HOME": none, "CUDA_PATH": str(tmp_path / "own")}) == ""


def test_what_is_installed_for_flashinfer_is_read_from_the_environment(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    for name in ("vllm-0.32.0", "flashinfer_python-0.7.0.post1", "torch-2.13.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    ninja = program(tmp_path / "bin/ninja")
    variables = {"PATH": f"{tmp_path}/bin", "CUDA_HOME": str(tmp_path)}
    assert kernels.look(str(tmp_path), {"chat": variables}) == {
        "installed": {"vllm": "0.32.0", "flashinfer-python": "0.7.0.post1"},
        "tools": {"chat": {"nvcc": "", "ninja": ninja}},
    }
    assert kernels.look("", {}) == {"installed": {}, "tools": {}}


def test_an_engine_finds_programs_by_its_own_variables() -> None:
    host = {
        **{"name": "n1", "address": "10.0.0.1", "interface": "eth1", "accelerator": "nvidia"},
        **{"supervisor": "systemd", "privileges": "none", "cluster_dir": "/c", "run_dir": "/r"},
        **{"models_dir": "/m", "site_environment": {"PATH": "/site/bin", "CUDA_HOME": "/site"}},
    }
    engines = [{"name": "a"}, {"name": "b", "environment": {"CUDA_HOME": "/mine", "OTHER": "1"}}]
    asked = request(host, [host], engines, "demo", {"directory": "/c/environments/1"})
    path = "/c/environments/1/bin:/site/bin"
    assert asked["environment"] == "/c/environments/1"
    assert asked["programs"] == {
        "a": {"PATH": path, "CUDA_HOME": "/site"},
        "b": {"PATH": path, "CUDA_HOME": "/mine"},
    }
    # What an image holds is its own.
    for image in ({"image": {"id": "x"}}, {"apptainer": "/x.sif"}):
        installed = {"directory": "/c/environments/1", **image}
        assert request(host, [host], engines, "demo", installed)["environment"] == ""


@pytest.mark.parametrize(
    ("groups", "expected"),
    [([], "off"), (["identity"], "passes"), (["identity", "DMA-FQ"], "translates"), ([""], "")],
)
def test_what_the_iommu_does_to_devices(tmp_path: Path, groups: list[str], expected: str) -> None:
    files = {
        "sys/bus/pci/devices/0000:00:1f.0/vendor": "0x8086\n",
        "sys/bus/pci/devices/0000:00:1f.0/class": "0x030000\n",
    }
    for number, kind in enumerate(groups or [""]):
        device = f"sys/bus/pci/devices/0000:0{number}:00.0"
        files |= {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030200\n"}
        if groups:
            files[f"sys/kernel/iommu_groups/{number}/type"] = f"{kind}\n"
            files[f"{device}/iommu_group/type"] = f"{kind}\n"
    assert system.iommu(tree(tmp_path, files)) == expected


def test_without_devices_nothing_is_said_of_the_iommu(tmp_path: Path) -> None:
    assert system.iommu(tmp_path) == ""


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("flags\t\t: fpu vme hypervisor lahf\n", True), ("flags\t\t: fpu vme\n", False), ("", None)],
)
def test_a_virtual_machine_is_known_by_its_processor(
    tmp_path: Path, flags: str, expected: bool | None
) -> None:
    assert system.virtual(tree(tmp_path, {"proc/cpuinfo": f"processor\t: 0\n{flags}"})) is expected
