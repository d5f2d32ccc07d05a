"""What fast links, several rails and RDMA ask of a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vllm_ansible.system.wants import Wants

Judged = Callable[..., Any]


def texts(found: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["text"] for file in found["network"]["repair"]["files"]}


def test_an_mtu_is_asked_for_only_when_it_is_given(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    assert not judged(look)["network"]["differences"]
    found = judged(look, replace(want, mtu=9000))
    (one,) = found["network"]["differences"]
    assert (one["expected"], one["found"]) == ("9000 (system_network_mtu)", "1500")
    link = ("ip", "link", "set", "dev", "eth1", "mtu", "9000")
    assert found["network"]["repair"]["commands"] == (link,)
    (rule,) = texts(found).values()
    assert 'ATTR{address}=="02:00:00:00:00:01", ATTR{mtu}="9000"' in rule


def test_a_strict_filter_matters_where_two_interfaces_share_a_network(
    judged: Judged, look: dict[str, Any]
) -> None:
    first, second = look["network"]["interfaces"]
    second["path_filter"] = 1
    assert not judged(look)["network"]["differences"], "each network has one interface"
    twin = {**second, "interface": "eth2", "address": "10.0.0.3", "path_filter": 2}
    look["network"]["interfaces"] = [first, second, twin]
    found = judged(look)
    (one,) = found["network"]["differences"]
    assert one["what"] == "the reverse path filter of eth1"
    assert one["needed"]
    assert "net.ipv4.conf.eth1.rp_filter = 2\n" in "".join(texts(found).values())


def test_two_addresses_of_one_interface_are_no_two_rails(
    judged: Judged, look: dict[str, Any]
) -> None:
    first, second = look["network"]["interfaces"]
    second["path_filter"] = 1
    look["network"]["interfaces"] = [first, second, {**second, "address": "10.0.0.9"}]
    assert not judged(look)["network"]["differences"]


def test_a_fast_link_gets_larger_buffers_and_keeps_what_is_larger(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["network"]["interfaces"][1]["speed"] = 100_000
    look["network"]["sysctls"]["net.core.wmem_max"] = [1 << 30]
    found = judged(look)
    assert [one["needed"] for one in found["network"]["differences"]] == [False] * 3
    text = "".join(texts(found).values())
    assert "net.core.rmem_max = 67108864\n" in text
    assert "net.ipv4.tcp_rmem = 4096 131072 33554432\n" in text
    assert "net.core.wmem_max" not in text


def test_what_a_container_does_not_have_is_not_asked_for(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["network"]["interfaces"][1]["speed"] = 100_000
    look["network"]["sysctls"] = dict.fromkeys(look["network"]["sysctls"])
    assert not judged(look)["network"]["differences"]


def test_without_rdma_devices_its_software_is_not_asked_for(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["devices"], look["network"]["verbs"] = [], False
    look["network"]["modules"]["rdma_ucm"] = False
    look["network"]["redirecting_bridges"] = ["0000:00:01.0"]
    found = judged(look)["network"]
    assert (found["differences"], found["notes"]) == ((), ())


def test_what_cannot_be_mended_from_here_is_told(judged: Judged, look: dict[str, Any]) -> None:
    port = {"link_layer": "Ethernet", "state": "ACTIVE", "gid_types": ["RoCE v2"]}
    look["devices"][0]["ports"] = [port]
    look["network"] |= {"redirecting_bridges": ["0000:00:01.0"], "iommu": True}
    notes = judged(look)["network"]["notes"]
    assert "mlx5_0 is RoCE with GID types RoCE v2" in notes[0]
    assert "1 PCI bridges (0000:00:01.0" in notes[1]
    assert "iommu=pt" in notes[2]
