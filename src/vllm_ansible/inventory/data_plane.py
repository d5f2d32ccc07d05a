"""Choose the address over which the ranks of each host talk: never by the default route."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network

from vllm_ansible.inventory.look import Address, HostLook
from vllm_ansible.problem import PlanError, Problem


def choose_addresses(
    looks: Sequence[HostLook], network: str, interfaces: dict[str, str], local: bool
) -> dict[str, Address]:
    """Return each host's data-plane address.

    interfaces holds data_plane_interface of each host. local says that the only host is the
    controller itself, which needs no network at all.
    """
    if not any(interfaces.values()) and not network:
        network = _only_network(looks, local)
    chosen: dict[str, Address] = {}
    problems: list[Problem] = []
    for look in looks:
        try:
            chosen[look.name] = _address(look, network, interfaces.get(look.name, ""))
        except PlanError as error:
            problems += error.problems
    problems += _shared(chosen)
    if problems:
        raise PlanError(problems)
    return chosen


def _address(look: HostLook, network: str, interface: str) -> Address:
    """Return the one address of a host on the wanted network and interface."""
    where = f"on interface {interface}" if interface else f"in {network}"
    found = [
        item
        for item in look.addresses
        if (not interface or item.interface == interface)
        and (not network or IPv4Address(item.address) in IPv4Network(network, strict=False))
    ]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(f"{item.address} ({item.interface})" for item in look.addresses)
    raise PlanError(
        Problem(
            f"{look.name} has {len(found) or 'no'} addresses {where}",
            expected=f"one address {where}",
            found=shown or "no address",
            where=look.name,
            fix=f"correct data_plane_network or data_plane_interface; it has {shown or 'none'}",
        )
    )


def _only_network(looks: Sequence[HostLook], local: bool) -> str:
    """Return the network all hosts have in common, or refuse to guess between several."""
    if local and len(looks) == 1:
        return "127.0.0.1/32"
    names = ", ".join(look.name for look in looks)
    common = _common(looks)
    if len(common) == 1:
        return common[0]
    if not common:
        each = "; ".join(
            f"{look.name}: {', '.join(sorted(_networks(look))) or 'none'}" for look in looks
        )
        raise PlanError(
            Problem(
                f"{names} have no network in common",
                expected="one network on every host",
                found=each,
                where="data_plane_network",
                fix="set data_plane_network to one wide enough for all, or data_plane_interface "
                f"for each host; found are {each}",
            )
        )
    raise PlanError(
        Problem(
            f"{names} share {len(common)} networks, {', '.join(common)}, and the one "
            "for the ranks cannot be guessed (the default route does not decide it)",
            expected="data_plane_network names one of them",
            found=", ".join(common),
            where="data_plane_network",
            fix=f"set data_plane_network: {common[0]} (or another of them)",
        )
    )


def _networks(look: HostLook) -> set[str]:
    """Return the networks that lead out of a host: bridges and loopback lead to itself."""
    return {item.network for item in look.addresses if item.kind not in ("loopback", "bridge")}


def _common(looks: Sequence[HostLook]) -> list[str]:
    """Return the networks every host is on."""
    shared = set.intersection(*(_networks(look) for look in looks)) if looks else set()
    return sorted(shared, key=IPv4Network)


def _shared(chosen: dict[str, Address]) -> list[Problem]:
    """Return the refusals of an address that two hosts have."""
    owners: dict[str, list[str]] = {}
    for name, item in chosen.items():
        owners.setdefault(item.address, []).append(name)
    return [
        Problem(
            f"{' and '.join(names)} both have {address} as data-plane address",
            expected="every host has its own address",
            found=address,
            where=", ".join(names),
            fix="set data_plane_network to the one between the hosts, or list each machine once",
        )
        for address, names in owners.items()
        if len(names) > 1
    ]
