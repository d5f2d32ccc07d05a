"""Give a lab bridge networks of its own, on addresses that nothing here uses."""

import ipaddress
import json
from collections.abc import Iterable
from typing import Any

from .commands import LabError, podman, run
from .record import NetworkRecord, Record

Network = ipaddress.IPv4Network
# Private addresses that home routers, clouds and podman itself seldom use.
POOL = ipaddress.IPv4Network("10.213.0.0/16")
FIRST_HOST = 11


def free_subnet(used: Iterable[Network], pool: Network = POOL) -> Network:
    """Return the first /24 of the pool that overlaps nothing in use."""
    taken = list(used)
    for candidate in pool.subnets(new_prefix=24):
        if not any(candidate.overlaps(other) for other in taken):
            return candidate
    raise LabError(f"No free /24 is left in {pool}; `ip route` shows what uses it.")


def used_subnets() -> list[Network]:
    """Return every network that this machine routes or podman has promised to someone."""
    texts = [route.get("dst", "") for route in json.loads(run(["ip", "-j", "-4", "route"]).stdout)]
    for one in listed_networks():
        texts += [subnet["subnet"] for subnet in one.get("subnets") or []]
    networks = (ipaddress.ip_network(text) for text in texts if text and text != "default")
    return [network for network in networks if isinstance(network, Network)]


def listed_networks(*options: str) -> list[dict[str, Any]]:
    """Return what podman knows about each network.

    In one look: another lab may remove one between a list of names and a question about them.
    """
    found: list[dict[str, Any]] = json.loads(podman("network", "ls", "--format", "json", *options))
    return found


def outside_mtu() -> int:
    """Return the MTU of the default route, so that hosts' packets fit through it."""
    routes = json.loads(run(["ip", "-j", "-4", "route", "show", "default"]).stdout)
    if not routes:
        return 1500
    device = json.loads(run(["ip", "-j", "link", "show", "dev", routes[0]["dev"]]).stdout)
    return int(device[0]["mtu"])


def plan_networks(record: Record, second: bool) -> list[NetworkRecord]:
    """Name the networks of a lab: `front` has the default route, `data` leads nowhere else."""
    used = used_subnets()
    planned: list[NetworkRecord] = []
    for role in ("front", "data")[: 2 if second else 1]:
        subnet = free_subnet(used)
        used.append(subnet)
        planned.append(
            NetworkRecord(role, f"vllm-lab-{record.token}-{role}", str(subnet), role == "data")
        )
    return planned


def create_network(network: NetworkRecord, token: str) -> None:
    """Create one network unless it is there."""
    if not network_exists(network):
        podman(
            *("network", "create", "--driver", "bridge", "--disable-dns"),
            *("--subnet", network.subnet, "--label", f"vllm-ansible.lab={token}"),
            *("--opt", f"mtu={outside_mtu()}"),
            *(["--internal"] if network.internal else []),
            network.name,
        )
    network.id = inspect_network(network)["id"]


def network_exists(network: NetworkRecord) -> bool:
    """Tell whether this very network exists."""
    argv = ["podman", "network", "exists", network.id or network.name]
    return run(argv, check=False).returncode == 0


def inspect_network(network: NetworkRecord) -> dict[str, str]:
    """Return what podman knows about a network: `id`, `network_interface`."""
    found: list[dict[str, str]] = json.loads(podman("network", "inspect", network.name))
    return found[0]


def remove_network(network: NetworkRecord) -> None:
    """Remove one network; one that is gone already is no error."""
    if network_exists(network):
        podman("network", "rm", network.id or network.name)


def host_address(network: NetworkRecord, index: int) -> str:
    """Return the address of the host with that index, counted from 0."""
    subnet = ipaddress.IPv4Network(network.subnet)
    if index + FIRST_HOST >= subnet.num_addresses - 1:
        raise LabError(f"{network.subnet} has no room for host number {index + 1}.")
    return str(subnet[index + FIRST_HOST])
