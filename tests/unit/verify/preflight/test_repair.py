"""Repairs are few and safe, say what they did, and touch nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.preflight import repair
from vllm_ansible.verify.preflight import repairs, request, room

ASKED = {
    "cluster": "demo",
    "supervisor": "systemd",
    "limits": {"memlock": "infinity", "nofile": "65536"},
    "hostname": "n1",
    "address": "10.0.0.1",
    "reset_devices": [],
    "peer_module": "nvidia-peermem",
    "etc": "/etc",
}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 n1\n", "127.0.0.1 localhost\n10.0.0.1 n1\n"),
        ("127.0.1.1\tn1.site n1 # cloud\n", "127.0.1.1 n1.site\n10.0.0.1 n1\n"),
        ("::1 localhost n1\n10.0.0.1 n1\n", "::1 localhost\n10.0.0.1 n1\n"),
        ("127.0.0.1 n10 localhost\n# 127.0.1.1 n1\n", None),
        ("10.0.0.1 other\n", "10.0.0.1 other\n10.0.0.1 n1\n"),
    ],
)
def test_a_name_loses_its_loopback_address_and_no_other_line(before: str, after: str) -> None:
    wanted = f"{before}10.0.0.1 n1\n" if after is None else after
    assert repair.without_loopback(before, "n1", "10.0.0.1") == wanted
    assert repair.without_loopback(wanted, "n1", "10.0.0.1") == wanted


def test_network_cards_reach_the_devices_that_are_there() -> None:
    (loaded,) = planned("peer_memory", peer_module="enflame_peer_mem")
    assert loaded.commands == (("modprobe", "enflame_peer_mem"),)
    assert loaded.path == "/etc/modules-load.d/enflame_peer_mem.conf"


def planned(*failing: str, **more: Any) -> list[repair.Repair]:
    return repair.plan({**ASKED, **more}, failing, "127.0.1.1 n1\n")


def test_nothing_is_done_for_what_people_must_decide() -> None:
    left = ("mtu", "routes", "disk", "device_memory", "host_memory", "write", "xid", "driver")
    assert planned(*left) == []


def test_a_device_is_reset_only_where_that_was_asked_for() -> None:
    assert planned("xid") == []
    (one,) = planned("xid", reset_devices=["0000:06:00"])
    assert one.commands == (("nvidia-smi", "--gpu-reset", "-i", "0000:06:00"),)


def test_each_repair_names_what_it_did() -> None:
    for check in ("hostname", "shm", "memlock", "nofile", "hugepages", "peer_memory"):
        (one,) = planned(check)
        assert one.check == check and one.told


def test_limits_are_raised_where_the_supervisor_reads_them() -> None:
    (one,) = planned("memlock", "nofile")
    assert one.path == "/etc/systemd/system/vllm-demo-.service.d/zz-vllm-ansible.conf"
    assert one.content == "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=65536\n"
    (two,) = planned("memlock", "nofile", supervisor="supervisord")
    every = "{0} - memlock unlimited\n{0} - nofile 65536\n"
    assert two.content == every.format("*") + every.format("root")


def test_both_sides_reserve_as_many_huge_pages() -> None:
    assert repair.EFA_HUGE_PAGES == room.EFA_HUGE_PAGES


def test_a_failure_concerns_the_hosts_it_names() -> None:
    failing = [{"where": "n1, n10"}, {"where": "n1 device 0"}, {"where": "n2"}]
    assert repairs.failing_on(failing, "n1") == failing[:2]
    assert repairs.failing_on(failing, "n10") == failing[:1]


def test_devices_in_use_are_never_reset(h200: Any) -> None:
    error = {"pci": "0000:06:00", "verdict": "reset"}
    for state, wanted in (("idle", ["0000:06:00"]), ("held", [])):
        h200[state]["kernel_log"]["errors"] = [error]
        assert repairs.resettable({"devices": h200[state]}) == wanted
    h200["idle"]["devices"][0]["processes"] = None
    assert repairs.resettable({"devices": h200["idle"]}) == []
    assert repairs.resettable({}) == []


def test_a_host_is_asked_for_its_peers_and_for_every_cache(healthy: Any) -> None:
    hosts = list(healthy(2, "cpu").hosts.values())
    engines = [{"name": "a", "environment": {"TRITON_CACHE_DIR": "/nfs/t"}}, {"name": "b"}]
    asked = request.request(hosts[0], hosts, engines, "demo")
    assert asked["run_dir"] == "/run/c-supervisord"  # where root's supervisord is
    assert asked["peers"] == {"n2": "10.0.0.2"}
    assert asked["directories"]["cache a TRITON_CACHE_DIR"] == "/nfs/t"
    assert asked["directories"]["cache b"] == "/opt/c/engines/b/cache"
    assert asked["write_as"]["cluster"] == "" and asked["write_as"]["cache b"] == "vllm"
    mine = request.request({**hosts[0], "privileges": "none"}, hosts, engines, "demo")
    assert mine["run_dir"] == "/run/c"
    assert set(mine["write_as"].values()) == {""}


def test_the_cuda_of_a_lock_is_that_of_its_runtime() -> None:
    assert request.cuda_of("nvidia-cuda-runtime==13.0.96 \\\n") == "13.0"
    assert request.cuda_of("torch==2\nnvidia-cuda-runtime-cu12==12.8.90\n") == "12.8"
    assert request.cuda_of("torch==2\n") == ""
