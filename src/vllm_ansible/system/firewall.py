"""Rules that keep peers from each other; opened is never more than the data plane's addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.system.judged import HEADER, Difference, File, Judged, Repair
from vllm_ansible.system.wants import Wants

RULES = "/etc/vllm-ansible/firewall-{cluster}.sh"
UNIT = "vllm-ansible-firewall-{cluster}.service"
UNIT_TEXT = """\
[Unit]
Description=Let the hosts of cluster {cluster} reach each other
# What reads the ruleset anew forgets ours.
After=nftables.service
PartOf=nftables.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {rules}
[Install]
WantedBy=multi-user.target nftables.service
"""
# A reload that is passed on to another unit comes too early: ours must follow in the same one.
RELOAD = "/etc/systemd/system/nftables.service.d/90-vllm-ansible-{cluster}.conf"
# The old rule goes after the new one came, so that nothing is refused in between.
RULE_TEXT = """\
old=$(nft --handle list chain {place} | sed -n '/comment "{mark}"/s/.*# handle //p')
nft --check insert rule {place} {rule}
nft insert rule {place} {rule}
for handle in $old; do
    nft delete rule {place} handle "$handle"
done
"""


def judge(look: Mapping[str, Any], want: Wants) -> Judged:
    """Return one difference for each chain that refuses peers, and the rules that let them in."""
    found = look["firewall"]
    notes = []
    if not found["readable"]:
        notes.append("the rules of iptables cannot be read here: nft is not installed")
    if found["legacy"]:
        notes.append("there are rules of iptables-legacy, which are not read")
    names = {address: name for name, address in want.peers.items()}
    chains: dict[tuple[str, str, str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for address, refusals in found["refusals"].items():
        for one in refusals:
            place = (one["family"], one["table"], one["chain"], one["hook"])
            chains.setdefault(place, []).append((names[address], one))
    # All peers and all chains: what is open already must stay so when it is written anew.
    kind, addresses = found["kind"], sorted(want.peers.values())
    repair = mend(kind, addresses, [tuple(one) for one in found["unmended"]], want)
    differences = tuple(
        refused(kind, place, peers, by_hand(kind, repair, place, addresses, want), found["ports"])
        for place, peers in chains.items()
    )
    return Judged(differences, tuple(notes), repair if differences else Repair())


def refused(
    kind: str,
    place: tuple[str, str, str, str],
    peers: Sequence[tuple[str, Mapping[str, Any]]],
    fix: str,
    ports: Sequence[int],
) -> Difference:
    """Return the difference of one chain; where a rule is not understood nothing is claimed."""
    family, table, chain, hook = place
    sure = all(one["sure"] for _, one in peers)
    way = "to" if hook == "output" else "from"
    return Difference(
        what=f"the firewall ({kind})",
        expected=f"all ports from {ports[0]} to {ports[1]} open {way} the peers",
        found=f"chain {family} {table} {chain} {'refuses' if sure else 'may refuse'} ports "
        f"{shown(peers[0][1]['ports'])} {way} {', '.join(name for name, _ in peers)}",
        fix=fix,
        needed=sure,
    )


def mend(
    kind: str,
    addresses: Sequence[str],
    chains: Sequence[tuple[str, str, str, str]],
    want: Wants,
) -> Repair:
    """Return what opens a firewall to some addresses and to nobody else."""
    if kind == "ufw":
        ways = {("out", "to") if hook == "output" else ("from",) for *_, hook in chains}
        pairs = [(way, one) for way in sorted(ways) for one in addresses]
        # In front: the first rule that fits decides.
        return Repair(commands=tuple(("ufw", "prepend", "allow", *way, one) for way, one in pairs))
    if kind == "firewalld":
        change = [("--zone=trusted", f"--add-source={address}") for address in addresses]
        return Repair(
            commands=(
                *(("firewall-cmd", "--permanent", *one) for one in change),
                *(("firewall-cmd", *one) for one in change),
            )
        )
    return of_nftables(addresses, chains, want)


def of_nftables(
    addresses: Sequence[str], chains: Sequence[tuple[str, str, str, str]], want: Wants
) -> Repair:
    """Return rules in front of the chains that refuse.

    An accept in a table of our own would not help: every table has to accept.
    """
    path, unit = RULES.format(cluster=want.cluster), UNIT.format(cluster=want.cluster)
    parts = [
        RULE_TEXT.format(place=f"{family} {table} {chain}", rule=rule, mark=want.mark)
        for family, table, chain, hook in chains
        for rule in [f"'{accept(addresses, hook, want)}'"]
    ]
    files = [File(path, f"{HEADER}set -eu\n{''.join(parts)}", validate="sh -n %s")]
    if not want.systemd:
        return Repair(files=tuple(files), commands=(("sh", path),))
    text = HEADER + UNIT_TEXT.format(cluster=want.cluster, rules=path)
    files.append(File(f"/etc/systemd/system/{unit}", text))
    reload = f"{HEADER}[Service]\nExecReload=-/bin/sh {path}\n"
    files.append(File(RELOAD.format(cluster=want.cluster), reload))
    return Repair(
        files=tuple(files),
        commands=(
            ("systemctl", "daemon-reload"),
            ("systemctl", "enable", "--quiet", unit),
            ("systemctl", "restart", unit),
        ),
    )


def accept(addresses: Sequence[str], hook: str, want: Wants) -> str:
    """Return the rule that lets some addresses in, or packets to them out."""
    side = "daddr" if hook == "output" else "saddr"
    listed = ", ".join(addresses)
    return f'ip {side} {{ {listed} }} accept comment "{want.mark}"'


def by_hand(
    kind: str,
    repair: Repair,
    place: tuple[str, str, str, str],
    addresses: Sequence[str],
    want: Wants,
) -> str:
    """Return the fix of one chain as a person would type it."""
    if kind == "nftables":
        family, table, chain, hook = place
        return f"nft insert rule {family} {table} {chain} '{accept(addresses, hook, want)}'"
    return "; ".join(" ".join(command) for command in repair.commands)


def shown(ports: Sequence[Sequence[int]]) -> str:
    """Return port ranges for people."""
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ports)
