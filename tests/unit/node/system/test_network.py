from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node.system import network


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
