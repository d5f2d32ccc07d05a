"""What a link should be like, and the commands of tc and nft that make it so; nothing runs here.

Everything acts on the bridge's end of a host's cable, so nothing a role does inside the host, not
even flushing its firewall, can undo it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .commands import LabError
from .record import LinkRecord

UNLIMITED = "100gbit"
QUEUE = "400kb"  # 32 ms at 100 Mbit/s: a switch's buffer, not an ocean
PARTS = 100_000
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Port:
    """The bridge's end of one host's cable, and the helper device for what the host sends."""

    host: str
    address: str
    device: str
    helper: str


def delay_seconds(text: str) -> float:
    """Read `20ms`, `500us` or `1s`; nothing is no delay."""
    if not text:
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    if not found:
        raise LabError(f"Delay {text!r} is not understood; write it like 20ms, 500us or 1s.")
    return float(found[1]) * UNITS[found[2]]


def check(link: LinkRecord) -> None:
    """Refuse what no tool would understand, before anything is recorded."""
    delay_seconds(link.delay)
    if link.rate and not re.fullmatch(r"\d+(\.\d+)?[kmg]?bit", link.rate):
        raise LabError(f"Rate {link.rate!r} is not understood; write it like 100mbit or 1gbit.")
    if not 0 <= link.loss <= 100:
        raise LabError(f"Loss is a percentage from 0 to 100, found {link.loss}.")


def shaped_class(device: str, number: int, rate: str) -> list[list[str]]:
    """Return the commands for one class with its own rate and a bounded queue."""
    htb = ["parent", "1:", "classid", f"1:{number}", "htb", "rate", rate, "quantum", "1514"]
    return [
        ["tc", "class", "add", "dev", device, *htb],
        ["tc", "qdisc", "add", "dev", device, "parent", f"1:{number}", "bfifo", "limit", QUEUE],
    ]


def shaper(device: str, rate: str) -> list[list[str]]:
    """Return the commands that give a device one rate."""
    root = ["tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "1"]
    return [root, *shaped_class(device, 1, rate)]


def towards_host(port: Port, rate: str, pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Shape what the host receives; `pairs` are a sender's address and its rate."""
    if not rate and not pairs:
        return []
    commands = shaper(port.device, rate or UNLIMITED)
    for number, (sender, pair_rate) in enumerate(pairs, start=2):
        match = ["u32", "match", "ip", "src", f"{sender}/32", "flowid", f"1:{number}"]
        commands += shaped_class(port.device, number, pair_rate)
        commands.append(
            ["tc", "filter", "add", "dev", port.device, "parent", "1:", "protocol", "ip", *match]
        )
    return commands


def from_host(port: Port, rate: str) -> list[list[str]]:
    """Shape what the host sends: arriving packets take a detour over the helper device."""
    if not rate:
        return []
    detour = ["action", "mirred", "egress", "redirect", "dev", port.helper]
    everything = ["protocol", "all", "u32", "match", "u32", "0", "0", *detour]
    return [
        ["ip", "link", "add", port.helper, "type", "ifb"],
        ["ip", "link", "set", port.helper, "up"],
        *shaper(port.helper, rate),
        ["tc", "qdisc", "add", "dev", port.device, "handle", "ffff:", "ingress"],
        ["tc", "filter", "add", "dev", port.device, "parent", "ffff:", *everything],
    ]


def rates(port: Port, links: Iterable[LinkRecord], addresses: dict[str, str]) -> list[list[str]]:
    """Return all commands for the rates that touch one host."""
    own, pairs = "", []
    for link in links:
        if link.rate and port.host in (link.host, link.peer):
            if link.peer:
                other = link.peer if link.host == port.host else link.host
                pairs.append((addresses[other], link.rate))
            else:
                own = link.rate
    return towards_host(port, own, pairs) + from_host(port, own)


def verdict(link: LinkRecord) -> str:
    """Return what happens to a packet on this link: dropped always, sometimes or never."""
    if link.cut or link.loss >= 100:
        return "drop"
    lost = round(link.loss / 100 * PARTS)
    return f"numgen random mod {PARTS} < {lost} drop" if lost else ""


def losses(table: str, ports: dict[tuple[str, str], Port], links: Iterable[LinkRecord]) -> str:
    """Return an nft script that replaces this lab's table; ports are keyed by host and network."""
    arriving, leaving = [], []
    for link in links:
        rule = verdict(link)
        if not rule:
            continue
        here = ports[link.host, link.network]
        if link.peer:
            there = ports[link.peer, link.network]
            leaving.append(f'oifname "{here.device}" ip saddr {there.address} {rule}')
            leaving.append(f'oifname "{there.device}" ip saddr {here.address} {rule}')
        else:
            arriving.append(f'iifname "{here.device}" {rule}')
            leaving.append(f'oifname "{here.device}" {rule}')
    script = [f"table bridge {table}", f"delete table bridge {table}"]
    if arriving or leaving:
        hooks = {"prerouting priority -300": arriving, "postrouting priority 300": leaving}
        script.append(f"table bridge {table} {{")
        for hook, rules in hooks.items():
            name = hook.split()[0]
            script += [f"chain {name} {{", f"type filter hook {hook};", *rules, "}"]
        script.append("}")
    return "\n".join(script) + "\n"


def delays(
    port: Port, links: Iterable[LinkRecord], addresses: dict[str, str]
) -> tuple[float, dict[str, float]]:
    """Return one host's own one-way delay, and what each peer's address adds to it."""
    own, peers = 0.0, {}
    for link in links:
        seconds = delay_seconds(link.delay)
        if not seconds or port.host not in (link.host, link.peer):
            continue
        if link.peer:
            # The receiving side alone waits, so that a pair's delay counts once a direction.
            other = link.peer if link.host == port.host else link.host
            peers[addresses[other]] = seconds
        else:
            own = seconds
    return own, peers
