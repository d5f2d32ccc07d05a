"""The data plane as each host sees it, and as all of them must see it alike."""

from __future__ import annotations

import ipaddress
from typing import Any

from vllm_ansible.verify.preflight.check import (
    EVERYWHERE,
    FAIL,
    PASS,
    WARN,
    Check,
    Cluster,
    Row,
    equal,
)

HOSTNAME = Check(
    "hostname",
    "what the own hostname means",
    "gloo binds it, and no peer reaches loopback",
)
ADDRESS = Check("address", "the data plane's address", "Ray and vLLM find each other by it")
LINK = Check("link", "the data plane's interface", "an interface that is down carries nothing")
ROUTES = Check("routes", "the way to every peer", "traffic over another network is slow or dropped")
MTU = Check("mtu", "the MTU", "the larger of two packets vanishes: small messages work, large hang")
SPEED = Check("speed", "the link's speed", "the slowest link sets the pace of every collective")
ERRORS = Check("link_errors", "errors on the link", "frames that are lost are sent again, late")
CHECKS = (HOSTNAME, ADDRESS, LINK, ROUTES, MTU, SPEED, ERRORS)
# IEEE 802.3 asks of a link at most this part of frames lost (25GBASE-R and faster).
FRAME_LOSS = 6.2e-10


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    if not cluster.several:
        host = next(iter(cluster.hosts))
        return [check.skipped(host, "one host: nothing crosses a network") for check in CHECKS]
    found = []
    for host in cluster.hosts:
        plane = cluster.looks[host]["data_plane"]
        found += [_hostname(cluster, host, plane), _address(cluster, host, plane)]
        found += [_link(cluster, host, plane), _routes(cluster, host, plane)]
        found.append(_errors(cluster, host, plane))
    return [*found, _mtu(cluster), _speed(cluster)]


def loopback(address: str) -> bool:
    """Tell whether an address reaches only its own host."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _hostname(cluster: Cluster, host: str, plane: Any) -> Row:
    name, found = plane["hostname"], plane["resolves_to"]
    local = [one for one in found or [] if loopback(one)]
    told = f"{name}: " + (
        "no answer in time" if found is None else ", ".join(found) or "does not resolve"
    )
    address = cluster.hosts[host]["address"]
    # In place: what is mounted over /etc/hosts in containers cannot be replaced.
    fix = (
        f"hosts=$(sed -E '/^(127\\.|::1)/s/[[:space:]]{name}\\b//g' /etc/hosts) && "
        f"printf '%s\\n{address} {name}\\n' \"$hosts\" > /etc/hosts"
    )
    verdict = FAIL if local or not found else PASS
    return HOSTNAME.judged(verdict, host, "an address that peers reach", told, fix)


def _address(cluster: Cluster, host: str, plane: Any) -> Row:
    address, name = cluster.hosts[host]["address"], cluster.hosts[host]["interface"]
    verdict = PASS if address in plane["addresses"] else FAIL
    told = f"{', '.join(plane['addresses']) or 'no address'} on {name}"
    fix = f"ip -4 address show dev {name}; correct data_plane_network or data_plane_interface"
    return ADDRESS.judged(verdict, host, f"{address} on {name}", told, fix)


def _link(cluster: Cluster, host: str, plane: Any) -> Row:
    name, found = cluster.hosts[host]["interface"], plane["interface"]
    # Drivers of virtual interfaces do not say more than unknown.
    up = bool(found) and found["carrier"] and found["state"] in ("up", "unknown")
    carrier = found and ("carrier" if found["carrier"] else "no carrier")
    told = f"{found['state']}, {carrier}" if found else f"no interface {name}"
    fix = f"ip link set {name} up; without a carrier look at the cable and the switch"
    return LINK.judged(PASS if up else FAIL, host, f"{name} up, with a carrier", told, fix)


def _routes(cluster: Cluster, host: str, plane: Any) -> Row:
    own = cluster.hosts[host]
    wrong = []
    for peer, route in plane["routes"].items():
        if route.get("error"):
            wrong.append((peer, f"{peer}: {route['error']}"))
        elif (route["source"], route.get("interface")) != (own["address"], own["interface"]):
            by = f"{route.get('interface', 'no interface')} from {route['source']}"
            way = f" by {route['gateway']}" if "gateway" in route else ""
            wrong.append((peer, f"{peer}: {by}{way}"))
    wanted = f"by {own['interface']} from {own['address']}"
    if not wrong:
        told = f"{len(plane['routes'])} peers {wanted}"
        return ROUTES.row(PASS, host, wanted, told)
    peer = wrong[0][0]
    target = cluster.hosts[peer]["address"] if peer in cluster.hosts else peer
    fix = (
        f"ip route get {target} shows the route, ip rule what chose it; remove what leads astray, "
        f"or: ip route replace {target} dev {own['interface']} src {own['address']}"
    )
    return ROUTES.row(FAIL, host, wanted, "; ".join(one for _, one in wrong), fix)


def _interfaces(cluster: Cluster, name: str) -> dict[str, str]:
    looks = {host: look["data_plane"]["interface"] for host, look in cluster.looks.items()}
    return {host: str(one[name]) for host, one in looks.items() if one and one[name] is not None}


def _mtu(cluster: Cluster) -> Row:
    values = _interfaces(cluster, "mtu")
    common = max(values.values(), key=int, default="")
    fix = f"ip link set dev <interface> mtu {common}, on every host and on the switch"
    return equal(MTU, values, fix)


def _speed(cluster: Cluster) -> Row:
    values = _interfaces(cluster, "speed")
    if not values:
        return SPEED.skipped(EVERYWHERE, "no interface of the data plane reports its speed")
    words = {host: f"{value} Mbit/s" for host, value in values.items()}
    return equal(SPEED, words, "ethtool <interface>; look at the cable, the module and the switch")


def _errors(cluster: Cluster, host: str, plane: Any) -> Row:
    if not plane["interface"]:
        return ERRORS.skipped(host, "the interface is missing")
    counters = {name: count or 0 for name, count in plane["interface"]["counters"].items()}
    packets = counters.pop("rx_packets", 0) + counters.pop("tx_packets", 0)
    allowed = int(packets * FRAME_LOSS)
    bad = {name: count for name, count in counters.items() if count > allowed}
    told = ", ".join(f"{name} {count}" for name, count in (bad or {"errors": 0}).items())
    name = cluster.hosts[host]["interface"]
    fix = f"ethtool -S {name} twice: where it grows, look at the cable, the module and the switch"
    wanted = f"at most {allowed} of each in {packets} frames"
    return ERRORS.judged(WARN if bad else PASS, host, wanted, told, fix)
