"""Each look reads what the kernel and the tools tell, and survives where they tell nothing."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.system import (
    clock,
    containers,
    firewall,
    limits,
    links,
    memory,
    names,
    pci,
)
from vllm_ansible.node.system.tool import Tools


def put(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def tools(**said: str | None) -> Tools:
    """Return tools of which only the named ones are there; None fails."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        text = said[Path(argv[0]).name]
        return (1, "", "no") if text is None else (0, text, "")

    return Tools(find=lambda name: f"/bin/{name}" if name in said else None, run=run)


@pytest.fixture
def here() -> Tools:
    """Return the tools of this machine."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return Tools(find=shutil.which, run=run)


def test_limits_are_those_of_this_process(here: Tools) -> None:
    found = limits.look(here, {"nofile": 64})
    assert found["login"]["nofile"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))
    assert found["settable"] == {"nofile": 64}
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == tuple(found["login"]["nofile"])


def test_a_limit_that_cannot_be_set_is_told_as_the_one_there_is(
    as_nobody: Callable[[Callable[[], Any]], Any],
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = as_nobody(lambda: limits.look(tools(), {"nofile": hard + 1, "memlock": 0}))
    assert found["settable"] == {"nofile": hard, "memlock": 0}
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_limits_of_units_have_a_soft_and_a_hard_side() -> None:
    said = "DefaultLimitNOFILE=524288\nDefaultLimitNOFILESoft=1024\nDefaultLimitMEMLOCK=infinity\n"
    assert limits.of_units(said) == {"nofile": [1024, 524288], "memlock": [-1, -1]}
    assert limits.of_units(None) == {}


def test_huge_pages_are_counted(tmp_path: Path) -> None:
    text = "MemAvailable:   1000 kB\nHugepagesize:       2048 kB\n"
    put(tmp_path, proc__meminfo=text, proc__sys__vm__nr_hugepages="12\n")
    found = memory.look(tmp_path)
    assert (found["page_kib"], found["pages"], found["available_kib"]) == (2048, 12, 1000)
    assert found["processors"] == os.cpu_count()
    assert memory.look(tmp_path / "nowhere")["pages"] is None


def test_the_hosts_own_name_is_resolved_as_programs_do() -> None:
    found = names.look()
    assert found["name"] == socket.gethostname()
    assert "localhost" in found["hosts_file"]
    assert "127.0.0.1" in names.addresses("localhost")
    assert names.addresses("no-such-name.invalid") == []


@pytest.mark.parametrize(
    ("texts", "rewritten"),
    [
        ({}, False),
        ({"etc__cloud__cloud.cfg": "users: []\n# manage_etc_hosts: true\n"}, False),
        ({"etc__cloud__cloud.cfg": "manage_etc_hosts: true\n"}, True),
        ({"etc__cloud__cloud.cfg": "manage_etc_hosts: localhost\n"}, True),
        (
            {
                "etc__cloud__cloud.cfg": "manage_etc_hosts: true\n",
                "etc__cloud__cloud.cfg.d__90-ours.cfg": "manage_etc_hosts: false\n",
            },
            False,
        ),
    ],
)
def test_cloud_init_tells_whether_it_writes_the_hosts_file(
    tmp_path: Path, texts: dict[str, str], rewritten: bool
) -> None:
    put(tmp_path, **texts)
    assert names.rewritten_at_boot(tmp_path) is rewritten


def test_the_kernel_tells_whether_its_clock_is_kept(tmp_path: Path) -> None:
    put(tmp_path, proc__12__comm="chronyd\n", proc__13__comm="sshd\n")
    found = clock.look(tmp_path)
    assert found["daemons"] == ["chronyd"]
    assert found["settable"]
    put(tmp_path, proc__self__status="Name:\tx\nCapBnd:\t00000000a80425fb\n")
    assert not clock.look(tmp_path)["settable"], "what Docker gives by default"
    # What `adjtimex` of any other program says; timedatectl asks the same.
    program = (
        "import ctypes; buffer = ctypes.create_string_buffer(512); "
        "print(ctypes.CDLL(None).adjtimex(buffer) == 5)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found["synchronised"] is (said.stdout.strip() == "False")


def test_interfaces_are_described(tmp_path: Path) -> None:
    put(
        tmp_path,
        sys__class__net__eth1__mtu="9000",
        sys__class__net__eth1__speed="200000",
        sys__class__net__eth1__address="02:00:00:00:00:01",
        proc__sys__net__ipv4__conf__all__rp_filter="0",
        proc__sys__net__ipv4__conf__eth1__rp_filter="1",
        proc__sys__net__ipv4__tcp_rmem="4096\t131072\t6291456",
    )
    found = links.interface({"interface": "eth1", "address": "10.0.0.1"}, tmp_path)
    assert found == {
        "interface": "eth1",
        "address": "10.0.0.1",
        "mtu": 9000,
        "speed": 200000,
        "hardware": "02:00:00:00:00:01",
        "path_filter": 1,
    }
    assert links.sysctl("net.ipv4.tcp_rmem", tmp_path) == [4096, 131072, 6291456]
    assert links.sysctl("net.core.rmem_max", tmp_path) is None


def test_rdma_devices_are_described(tmp_path: Path) -> None:
    place = "sys__class__infiniband__mlx5_0__ports__1__"
    put(
        tmp_path,
        **{
            f"{place}link_layer": "Ethernet\n",
            f"{place}state": "4: ACTIVE\n",
            f"{place}gid_attrs__types__0": "IB/RoCE v1\n",
            f"{place}gid_attrs__types__1": "RoCE v2\n",
        },
    )
    driver = tmp_path / "sys/bus/pci/drivers/mlx5_core"
    driver.mkdir(parents=True)
    device = tmp_path / "sys/class/infiniband/mlx5_0/device"
    device.mkdir()
    (device / "driver").symlink_to(driver)
    port = {
        "link_layer": "Ethernet",
        "state": "ACTIVE",
        "gid_types": ["IB/RoCE v1", "RoCE v2"],
    }
    assert links.devices(tmp_path) == [{"name": "mlx5_0", "driver": "mlx5_core", "ports": [port]}]
    assert links.devices(tmp_path / "nowhere") == []


def space(*capabilities: tuple[int, int, int]) -> bytes:
    """Return a configuration space with extended capabilities: identity, place, control."""
    whole = bytearray(4096)
    for index, (identity, place, control) in enumerate(capabilities):
        following = capabilities[index + 1][1] if index + 1 < len(capabilities) else 0
        whole[place : place + 4] = (identity | 1 << 16 | following << 20).to_bytes(4, "little")
        whole[place + 6 : place + 8] = control.to_bytes(2, "little")
    return bytes(whole)


def test_bridges_that_redirect_are_found(tmp_path: Path) -> None:
    spaces = {
        "0000:00:01.0": space((0x0001, 0x100, 0), (0x000D, 0x148, 0x1D)),
        "0000:00:02.0": space((0x000D, 0x100, 0x01)),
        "0000:00:03.0": space((0x0001, 0x100, 0)),
        "0000:00:04.0": space((0x000D, 0x100, 0x1D))[:64],
    }
    for name, content in spaces.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "class").write_text("0x060400\n")
        (tmp_path / name / "config").write_bytes(content)
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0/class").write_text("0x030200\n")
    (tmp_path / "0000:01:00.0/config").write_bytes(spaces["0000:00:01.0"])
    assert pci.bridges_that_redirect(tmp_path) == ["0000:00:01.0"]


def test_a_chain_of_capabilities_that_bites_its_tail_ends() -> None:
    assert pci.acs_control(space((0x0001, 0x100, 0), (0x0001, 0x200, 0), (0x0001, 0x100, 0))) == 0


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, "nftables"),
        ({"ufw": "Status: inactive\n"}, "nftables"),
        ({"ufw": "Status: active\n\nTo  Action  From\n"}, "ufw"),
        ({"firewall-cmd": "running\n"}, "firewalld"),
        ({"firewall-cmd": None}, "nftables"),
        ({"ufw": None, "firewall-cmd": None}, "nftables"),
    ],
)
def test_the_firewall_that_is_on_is_asked(said: dict[str, str | None], kind: str) -> None:
    assert firewall.kind(tools(**said)) == kind


def test_a_firewall_is_readable_or_says_that_it_is_not(tmp_path: Path) -> None:
    asked = firewall.Asked(["10.0.0.2"], "eth1", 20000, "ours")
    put(tmp_path, proc__sys__net__ipv4__ip_local_port_range="32768\t60999")
    found = firewall.look(tools(nft='{"nftables": []}'), asked, tmp_path)
    assert found["readable"] and found["refusals"] == {}
    assert found["ports"] == [20000, 60999]
    assert firewall.look(tools(), asked, tmp_path)["readable"], "nothing here could set a rule"
    assert not firewall.look(tools(nft=None), asked, tmp_path)["readable"]
    assert not firewall.look(tools(iptables=""), asked, tmp_path)["readable"]
    put(tmp_path, proc__net__ip_tables_names="filter\n")
    assert firewall.look(tools(), asked, tmp_path)["legacy"]


def test_runtimes_and_their_settings_are_told(tmp_path: Path) -> None:
    put(
        tmp_path,
        **{"etc__docker__daemon.json": '{"log-driver": "journald"}', "etc__cdi__nvidia.yaml": "x"},
    )
    found = containers.look(tools(podman=""), tmp_path)
    assert (found["docker"], found["podman"], found["docker_running"]) == (False, True, 0)
    assert found["docker_settings"] == {"log-driver": "journald"}
    assert found["device_lists"] == ["/etc/cdi/nvidia.yaml"]
    assert containers.parsed("no json") is None
    assert containers.parsed("") == {}
