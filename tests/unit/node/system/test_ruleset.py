"""Rules that nft itself has read are judged as the kernel would; each in a network of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.node.system.ruleset import Rules

PEER, PORTS = "10.0.0.2", (20000, 60999)
CHAIN = """
table inet filter {{
 chain input {{
  type filter hook {hook} priority 0; policy {policy};
  {rules}
 }}
}}
"""


def namespace(commands: str) -> dict[str, Any]:
    """Return the rules that some commands leave in a network namespace of their own."""
    missing = [tool for tool in ("unshare", "nft", "iptables-nft") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"rules need root and nft; uid {os.geteuid()}, missing {missing}")
    done = subprocess.run(
        ["unshare", "--net", "sh", "-euc", f"{commands}\nnft --json list ruleset"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "errors": done.stderr}


@pytest.fixture
def refused() -> Callable[..., list[Any]]:
    """Return what a chain of rules refuses the peer: ports, and whether that is sure."""

    def call(rules: str, policy: str = "drop", hook: str = "input") -> list[Any]:
        text = CHAIN.format(hook=hook, policy=policy, rules=rules)
        found = Rules(namespace(f"nft -f - <<'END'\n{text}END")).refusals(PEER, "eth1", PORTS)
        return [(one["ports"], one["sure"]) for one in found]

    return call


ALL = [([[20000, 60999]], True)]


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "ct state established,related accept",
        "ct state vmap { established : accept, related : accept, invalid : drop }",
        'iifname "lo" accept',
        'iifname "eth0" accept',
        "tcp dport { 22, 80, 8000-8100 } accept",
        "ip saddr 10.0.0.3 accept",
        "ip saddr { 10.0.0.3, 10.1.0.0/16 } accept",
        "ip saddr != 10.0.0.0/24 accept",
        "udp dport 20000-60999 accept",
        "ip6 saddr fe80::/10 accept",
        "icmp type echo-request accept",
        "ct status dnat accept",
        "meta l4proto icmp accept",
        "counter log",
    ],
)
def test_what_does_not_let_the_peer_in_leaves_the_policy(
    refused: Callable[..., list[Any]], rules: str
) -> None:
    assert refused(rules) == ALL
    assert refused(rules, policy="accept") == []


@pytest.mark.parametrize(
    "rules",
    [
        "accept",
        "ip saddr 10.0.0.2 accept",
        "ip saddr { 10.0.0.1, 10.0.0.2 } counter accept",
        "ip saddr 10.0.0.0/24 accept",
        "ip saddr 10.0.0.1-10.0.0.9 accept",
        "ip saddr != 10.1.0.0/16 accept",
        'iifname "eth1" accept',
        'iifname "eth*" accept',
        'iifname { "eth0", "eth1" } ip protocol tcp accept',
        "ip saddr 10.0.0.2 tcp dport 1024-65535 accept",
        "tcp dport 20000-40000 accept\ntcp dport { 40001-60999 } accept",
        "ct state new accept",
        "meta l4proto { tcp, udp } accept",
        "tcp dport != 22 accept",
    ],
)
def test_what_lets_the_peer_in_is_seen(refused: Callable[..., list[Any]], rules: str) -> None:
    assert refused(rules) == []
    assert refused(f"{rules}\ndrop", policy="accept") == []


def test_a_refusal_under_a_policy_that_accepts_is_seen(refused: Callable[..., list[Any]]) -> None:
    assert refused("ip saddr 10.0.0.0/24 reject", policy="accept") == ALL
    assert refused("drop\nip saddr 10.0.0.2 accept", policy="accept") == ALL, "the first decides"
    assert refused("tcp dport 30000-30100 drop", policy="accept") == [([[30000, 30100]], True)]


def test_a_part_of_the_ports_is_told_as_a_part(refused: Callable[..., list[Any]]) -> None:
    assert refused("tcp dport 20000-29999 accept") == [([[30000, 60999]], True)]


def test_what_leaves_is_judged_by_where_it_goes(refused: Callable[..., list[Any]]) -> None:
    assert refused("", hook="output") == ALL
    assert refused("ip daddr 10.0.0.2 accept", hook="output") == []
    assert refused("ip daddr 10.0.0.3 accept", hook="output") == ALL
    assert refused("", hook="forward") == []


def test_what_is_not_understood_is_not_claimed(refused: Callable[..., list[Any]]) -> None:
    unsure = [([[20000, 60999]], False)]
    assert refused("ip saddr 10.0.0.2 limit rate 10/second accept") == unsure
    assert refused("meta skuid 0 accept") == unsure
    assert refused("ip daddr 10.0.0.1 accept") == unsure
    assert refused('iifname vmap { "eth1" : accept }') == unsure


def test_chains_are_followed() -> None:
    text = """
table ip one {
 set friends { type ipv4_addr; flags interval; elements = { 10.0.0.0/30 } }
 chain open { ip saddr @friends accept; return; accept; }
 chain closed { tcp dport 50000-50010 drop; }
 chain input {
  type filter hook input priority 0; policy drop;
  iifname "eth1" jump closed
  goto open
  accept
 }
}"""
    rules = Rules(namespace(f"nft -f - <<'END'\n{text}\nEND"))
    (one,) = rules.refusals(PEER, "eth1", PORTS)
    assert (one["family"], one["table"], one["chain"], one["hook"]) == (
        "ip",
        "one",
        "input",
        "input",
    )
    assert (one["ports"], one["sure"]) == ([[50000, 50010]], True)
    assert [one["ports"] for one in rules.refusals("10.0.0.9", "eth0", PORTS)] == [[[20000, 60999]]]


def test_every_table_has_to_accept() -> None:
    """An accept in a table of its own does not overrule another table's refusal."""
    text = CHAIN.format(hook="input", policy="drop", rules="")
    text += (
        text.replace("filter {", "ours {", 1)
        .replace("drop", "accept")
        .replace("priority 0", "priority -10")
    )
    found = Rules(namespace(f"nft -f - <<'END'\n{text}END")).refusals(PEER, "eth1", PORTS)
    assert [one["table"] for one in found] == ["filter"]


def test_our_own_rules_can_be_left_out() -> None:
    text = CHAIN.format(
        hook="input", policy="drop", rules='ip saddr 10.0.0.2 accept comment "vllm-ansible demo"'
    )
    found = namespace(f"nft -f - <<'END'\n{text}END")
    assert not Rules(found).refusals(PEER, "eth1", PORTS)
    assert not Rules(found, without="vllm-ansible other").refusals(PEER, "eth1", PORTS)
    assert Rules(found, without="vllm-ansible demo").refusals(PEER, "eth1", PORTS)


def iptables(*rules: str) -> list[Any]:
    """Return what rules of iptables refuse the peer under a policy that drops."""
    lines = ["-P INPUT DROP", *(f"-A {rule}" for rule in rules)]
    commands = "".join(f"iptables-nft {line}\n" for line in lines)
    found = namespace(f"{commands}iptables-nft-save >&2")
    rules_now = Rules(found, saved=found["errors"])
    return [(one["ports"], one["sure"]) for one in rules_now.refusals(PEER, "eth1", PORTS)]


def test_rules_of_iptables_are_read() -> None:
    usual = (
        "INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "INPUT -i lo -j ACCEPT",
        "INPUT -p tcp --dport 22 -j ACCEPT",
        "INPUT -m addrtype --dst-type MULTICAST -j ACCEPT",
        "INPUT -p tcp -m multiport --dports 80,8000:8100 -j ACCEPT",
    )
    assert iptables(*usual) == ALL
    assert iptables(*usual, "INPUT -s 10.0.0.0/24 -j ACCEPT") == []
    assert iptables(*usual, "INPUT -m comment --comment x -s 10.0.0.2 -j ACCEPT") == []
    assert iptables("INPUT -m state --state NEW,ESTABLISHED -j ACCEPT") == []
    assert iptables("INPUT -m addrtype --dst-type LOCAL -j ACCEPT") == []
    assert iptables("INPUT -p tcp -m multiport --dports 20000:60999 -j ACCEPT") == []


def test_conditions_of_iptables_that_are_not_told_are_not_guessed() -> None:
    unsure = [([[20000, 60999]], False)]
    assert iptables("INPUT -m conntrack ! --ctstate INVALID -j ACCEPT") == unsure
    assert iptables("INPUT -m mac --mac-source 02:00:00:00:00:01 -j ACCEPT") == unsure
    found = namespace("iptables-nft -A INPUT -m conntrack --ctstate NEW -j DROP")
    assert Rules(found).refusals(PEER, "eth1", PORTS) == []


def test_no_rules_refuse_nobody() -> None:
    assert Rules({}).refusals(PEER, "eth1", PORTS) == []
