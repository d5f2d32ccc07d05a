from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node import network

ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	0100000A	0003	0	0	100	00000000	0	0	0
eth1	0000000A	00000000	0001	0	0	0	00FFFFFF	0	0	0
"""


def test_loopback_is_known_for_what_it_is() -> None:
    assert {
        "interface": "lo",
        "address": "127.0.0.1",
        "prefix": 8,
        "network": "127.0.0.0/8",
        "kind": "loopback",
    } in network.addresses()


@pytest.mark.skipif(shutil.which("ip") is None, reason="no iproute2 to compare with")
def test_addresses_are_those_that_iproute2_shows() -> None:
    shown = subprocess.run(["ip", "-4", "-json", "address"], capture_output=True, check=True)
    theirs = {
        (one["local"], one["prefixlen"])
        for interface in json.loads(shown.stdout)
        for one in interface["addr_info"]
    }
    assert {(one["address"], one["prefix"]) for one in network.addresses()} == theirs


@pytest.mark.parametrize(
    ("inside", "kind"), [("bridge", "bridge"), ("device", "physical"), ("queues", "virtual")]
)
def test_the_kernel_tells_cards_from_bridges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, kind: str
) -> None:
    (tmp_path / "eth0" / inside).mkdir(parents=True)
    monkeypatch.setattr(network, "NET", tmp_path)
    assert network.interface_kind("eth0") == kind


def test_the_default_route_with_the_lowest_metric_counts(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(ROUTES)
    assert network.default_route_interface(str(table)) == "eth0"


def test_a_host_without_a_default_route_has_none(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text("\n".join(line for line in ROUTES.splitlines() if "\t00000000\t0" not in line))
    assert network.default_route_interface(str(table)) == ""


def test_names_resolve_or_do_not() -> None:
    assert network.resolve("localhost") == "127.0.0.1"
    assert network.resolve("no-such-host.invalid") == ""


def test_only_who_listens_has_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        with socket.create_connection((address, port)) as client:
            ports = network.listening_ports()
            assert ports[port] == ["127.0.0.1"]
            assert client.getsockname()[1] not in ports
    assert port not in network.listening_ports()
