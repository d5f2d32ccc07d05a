"""Which firewall is on, and from whom it keeps the ports of the ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..kernel_files import text
from .extensions import extended
from .ruleset import Rules
from .tool import Tools

WRITERS = ("iptables", "nft")


class Asked(NamedTuple):
    """Addresses of peers, our interface, the first port of the ranks, our rules' comment."""

    peers: list[str]
    interface: str
    first_port: int
    mark: str


def look(tools: Tools, asked: Asked, root: Path = Path("/")) -> dict[str, Any]:
    """Return the firewall that is on and, by peer, the chains that refuse it; needs root.

    unmended are the chains that refuse when rules of ours are not counted: what is to be
    mended again after a reload. A chain is family, table, name and hook.
    Judged are TCP ports from first_port to the last that Linux hands out to whoever connects:
    Ray and the master listen on fixed ones, NCCL and Gloo on any.
    """
    ruleset = tools.ask_json("nft", "--json", "list", "ruleset")
    entries = (ruleset or {}).get("nftables", [])
    hidden = any(extended(one["rule"]["expr"]) for one in entries if "rule" in one)
    saved = (tools.ask("iptables-save") or "") if hidden else ""
    handed_out = text(root / "proc/sys/net/ipv4/ip_local_port_range").split()
    ports = (asked.first_port, int(handed_out[1]) if len(handed_out) == 2 else 65535)
    now, bare = (
        {peer: rules.refusals(peer, asked.interface, ports) for peer in asked.peers}
        for rules in (
            Rules(ruleset or {}, saved=saved),
            Rules(ruleset or {}, without=asked.mark, saved=saved),
        )
    )
    return {
        "kind": kind(tools),
        # Without either tool nothing on this host has set a rule.
        "readable": ruleset is not None or not any(tools.find(name) for name in WRITERS),
        "legacy": bool(text(root / "proc/net/ip_tables_names")),
        "ports": list(ports),
        "refusals": {peer: found for peer, found in now.items() if found},
        "unmended": sorted(
            {
                (one["family"], one["table"], one["chain"], one["hook"])
                for found in bare.values()
                for one in found
            }
        ),
    }


def kind(tools: Tools) -> str:
    """Return ufw or firewalld where that one is on, else nftables."""
    if "Status: active" in (tools.ask("ufw", "status") or ""):
        return "ufw"
    return "firewalld" if tools.ask("firewall-cmd", "--state") is not None else "nftables"
