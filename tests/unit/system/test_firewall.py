"""A firewall is opened to peers only, in every chain that refuses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.system.wants import Wants

Judged = Callable[..., Any]
CHAIN = {"family": "inet", "table": "filter", "chain": "input", "hook": "input"}
PLACE = ("inet", "filter", "input", "input")


@pytest.fixture
def refused(look: dict[str, Any]) -> dict[str, Any]:
    """Return a look at a host that refuses its peer."""
    one = {**CHAIN, "ports": [[20000, 60999]], "sure": True}
    look["firewall"] |= {"refusals": {"10.0.0.2": [one]}, "unmended": [PLACE]}
    return look


def script(found: dict[str, Any]) -> str:
    return str(found["firewall"]["repair"]["files"][0]["text"])


def test_who_refuses_whom_is_named(judged: Judged, refused: dict[str, Any]) -> None:
    (one,) = judged(refused)["firewall"]["differences"]
    assert one["found"] == "chain inet filter input refuses ports 20000-60999 from two"
    assert one["fix"] == (
        "nft insert rule inet filter input "
        "'ip saddr { 10.0.0.2 } accept comment \"vllm-ansible demo\"'"
    )
    assert one["needed"]


def test_what_is_not_sure_stops_nobody(judged: Judged, refused: dict[str, Any]) -> None:
    refused["firewall"]["refusals"]["10.0.0.2"][0]["sure"] = False
    (one,) = judged(refused)["firewall"]["differences"]
    assert "may refuse" in one["found"]
    assert not one["needed"]


def test_peers_that_are_let_in_already_stay_let_in(
    judged: Judged, refused: dict[str, Any], want: Wants
) -> None:
    """The rule is written anew: it has to hold for all peers and chains, not for new ones."""
    output = ("ip", "raw", "out", "output")
    refused["firewall"]["unmended"] = [PLACE, output]
    host = replace(want, peers={"two": "10.0.0.2", "three": "10.0.0.3"})
    text = script(judged(refused, host))
    assert "insert rule inet filter input 'ip saddr { 10.0.0.2, 10.0.0.3 } accept" in text
    assert "insert rule ip raw out 'ip daddr { 10.0.0.2, 10.0.0.3 } accept" in text


def test_rules_come_back_at_boot_where_systemd_runs(
    judged: Judged, refused: dict[str, Any], want: Wants
) -> None:
    unit = judged(refused)["firewall"]["repair"]["files"][1]
    assert unit["path"] == "/etc/systemd/system/vllm-ansible-firewall-demo.service"
    assert "WantedBy=multi-user.target nftables.service" in unit["text"]
    plain = judged(refused, replace(want, systemd=False))["firewall"]["repair"]
    assert plain["commands"] == (("sh", "/etc/vllm-ansible/firewall-demo.sh"),)
    assert len(plain["files"]) == 1


@pytest.mark.parametrize(
    ("kind", "commands"),
    [
        ("ufw", [("ufw", "prepend", "allow", "from", "10.0.0.2")]),
        (
            "firewalld",
            [
                ("firewall-cmd", "--permanent", "--zone=trusted", "--add-source=10.0.0.2"),
                ("firewall-cmd", "--zone=trusted", "--add-source=10.0.0.2"),
            ],
        ),
    ],
)
def test_firewalls_with_a_tool_of_their_own_are_opened_by_it(
    judged: Judged, refused: dict[str, Any], kind: str, commands: list[tuple[str, ...]]
) -> None:
    refused["firewall"]["kind"] = kind
    found = judged(refused)["firewall"]
    assert list(found["repair"]["commands"]) == commands
    assert found["repair"]["files"] == ()
    assert found["differences"][0]["fix"] == "; ".join(" ".join(one) for one in commands)


def test_a_firewall_that_is_off_is_left_off(judged: Judged, look: dict[str, Any]) -> None:
    assert not any(judged(look)["firewall"]["repair"].values())


def test_rules_that_cannot_be_read_are_told(judged: Judged, look: dict[str, Any]) -> None:
    look["firewall"] |= {"readable": False, "legacy": True}
    notes = judged(look)["firewall"]["notes"]
    assert "nft is not installed" in notes[0]
    assert "iptables-legacy" in notes[1]
