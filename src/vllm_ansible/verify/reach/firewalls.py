"""Say of blocked connections what blocks them, where, and with which commands to mend it."""

from __future__ import annotations

from vllm_ansible.node.reach.connect import FORBIDDEN, REFUSED, TIMED_OUT, UNREACHABLE
from vllm_ansible.verify.reach import blocked
from vllm_ansible.verify.reach.blocked import Blocked
from vllm_ansible.verify.reach.measured import Measured, listed, shown
from vllm_ansible.verify.reach.purposes import told
from vllm_ansible.verify.row import FAIL, Row

CHECK = "reach_ports"
TITLES = {
    blocked.EVERYONE: "no host reaches any other",
    blocked.HOST: "{sources} reaches no other host, and none reaches it",
    blocked.INTO: "no other host reaches {targets}",
    blocked.OUT_OF: "{sources} reaches no other host",
    blocked.PAIR: "{sources} does not reach {targets}",
    blocked.PORTS_INTO: "no other host reaches ports {ports} of {targets}",
    blocked.PORTS_OUT_OF: "{sources} does not reach ports {ports} of any other host",
    blocked.PORTS: "{sources} does not reach ports {ports} of {targets}",
}
BOTH_WAYS = {
    blocked.PAIR: "{sources} and {targets} do not reach each other",
    blocked.PORTS: "{sources} and {targets} do not reach ports {ports} of each other",
}
HOW = {
    TIMED_OUT: "connections time out: a firewall drops them, or the link is down",
    UNREACHABLE: "no route, or a firewall that answers `prohibited`",
    FORBIDDEN: "the firewall of the host that connects forbids it",
}


def explain(cause: Blocked, measured: Measured) -> Row:
    """Return one cause in the words of a gate."""
    names = {
        "sources": listed(cause.sources),
        "targets": listed(cause.targets),
        "ports": shown(cause.ports),
    }
    titles = {**TITLES, **(BOTH_WAYS if cause.both_ways else {})}
    uses = told(cause.ports, measured.purposes)
    kinds = _kinds(cause, measured)
    how = "; ".join(
        f"{_how(kind, ports, cause, measured)} (ports {shown(ports)})"
        if len(kinds) > 1
        else _how(kind, ports, cause, measured)
        for kind, ports in kinds.items()
    )
    ends = f"from {_ends(cause.sources, measured)} to {_ends(cause.targets, measured)}"
    return Row(
        verdict=FAIL,
        check=CHECK,
        what=titles[cause.scope].format(**names),
        expected=f"TCP connects to ports {names['ports']} ({uses})",
        found=f"{ends}: {how}",
        where=_where(cause),
        fix=_fix(cause, measured, set(kinds)),
    )


def _where(cause: Blocked) -> str:
    """Return who is to blame, as `verify_accept` names it."""
    sources, targets = ", ".join(cause.sources), ", ".join(cause.targets)
    if cause.scope in (blocked.PAIR, blocked.PORTS):
        return f"{sources} {'<->' if cause.both_ways else '->'} {targets}"
    return targets if cause.scope in (blocked.INTO, blocked.PORTS_INTO) else sources


def _kinds(cause: Blocked, measured: Measured) -> dict[str, list[int]]:
    """Return the cause's ports by how they failed."""
    failed = measured.failed
    found: dict[str, list[int]] = {}
    for pair in cause.pairs():
        for port, kind in failed.get(pair, {}).items():
            if port in cause.ports and port not in found.setdefault(kind, []):
                found[kind].append(port)
    return found


def _how(kind: str, ports: list[int], cause: Blocked, measured: Measured) -> str:
    """Return what a kind of failure means here."""
    if kind != REFUSED:
        return HOW[kind]
    targets = list(dict.fromkeys(pair[1] for pair in cause.pairs()))
    ended = [name for name in targets if not measured.answered[name]]
    if ended:
        return f"refused: the responder on {listed(ended)} had ended"
    own = set().union(*(measured.responders[name]["own"] for name in targets))
    if set(ports) <= own:
        return "refused: our own process has the port, but listens on another address"
    return "refused although a responder listens there: a firewall rejects it"


def _ends(names: tuple[str, ...], measured: Measured) -> str:
    return ", ".join(f"{name} ({measured.addresses[name]})" for name in names)


def _fix(cause: Blocked, measured: Measured, kinds: set[str]) -> str:
    """Return exact commands for the host that is to blame, or for both ends."""
    targets = list(dict.fromkeys(pair[1] for pair in cause.pairs()))
    if kinds == {REFUSED} and any(not measured.answered[name] for name in targets):
        return (
            "run the stage again; if it ends again, look at `dmesg` for the kernel's out-of-memory "
            f"killer on {listed(targets)}"
        )
    if cause.scope in (blocked.OUT_OF, blocked.PORTS_OUT_OF) or kinds == {FORBIDDEN}:
        host = listed(cause.sources)
        return (
            f"on {host}: `nft list ruleset` (or `iptables -S OUTPUT`) shows the rule for outgoing "
            f"connections; allow what goes to {_addresses(cause.targets, measured)}"
        )
    if cause.scope == blocked.EVERYONE:
        return (
            "see that the data plane is one network: `ip route get <address of a peer>` on any "
            "host; in a cloud, let the security group allow all traffic from itself"
        )
    if cause.scope == blocked.HOST:
        host = listed(cause.sources)
        return (
            f"on {host}: `ip -brief address` and `ethtool` for the link, `nft list ruleset` for a "
            "firewall; in a cloud, give it the security group of the others"
        )
    hosts = listed(targets)
    peer = measured.addresses[cause.sources[0]]
    route = f"`ip route get {peer}` there; " if kinds & {UNREACHABLE, TIMED_OUT} else ""
    return (
        f"on {hosts}: {route}`nft list ruleset` shows the rule; allow every peer, as "
        f"`ufw allow from {peer}` or `firewall-cmd --permanent --zone=trusted "
        f"--add-source={peer} && firewall-cmd --reload`; in a cloud, let the security group allow "
        "all traffic from itself"
    )


def _addresses(names: tuple[str, ...], measured: Measured) -> str:
    return ", ".join(measured.addresses[name] for name in names)
