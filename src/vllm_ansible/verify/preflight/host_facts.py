"""Turn a look at a host, as the preflight takes it, into the facts that causes are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Value = str | int | float | bool | tuple[str, ...]
_GIB = 1 << 30


def facts(look: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Value]:
    """Return what is known of a host.

    look: what preflight_info returned. host: its site_host. Sizes are in GiB, limits in bytes, and
    what the look has not found out is left out.
    """
    found: dict[str, Value] = {
        **_system(look.get("system") or {}),
        **_network(look.get("data_plane") or {}, host),
        **_cards(look.get("rdma")),
        **_memory(look.get("memory") or {}, look.get("limits") or {}),
        **_disks(look.get("storage") or {}),
        **_compilers(look.get("kernels") or {}),
    }
    if "devices" in look and host.get("accelerator") == "nvidia":
        found.update(_devices(look["devices"]))
    return found


def _system(system: Mapping[str, Any]) -> dict[str, Value]:
    names = ("kernel", "architecture", "python", "glibc", "container", "iommu", "virtual")
    found: dict[str, Value] = {
        name: system[name] for name in names if system.get(name) not in (None, "")
    }
    if "compiler" in system:
        found["compiler"] = system["compiler"] or "none"
        found["python_headers"] = bool(system.get("headers"))
    if system.get("clock_synchronised") is not None:
        found["clock_synchronised"] = bool(system["clock_synchronised"])
    return found


def _devices(devices: Mapping[str, Any]) -> dict[str, Value]:
    opened = [one for one in devices["devices"] if "error" not in one]
    found: dict[str, Value] = {"devices": len(opened), "devices_listed": len(devices["devices"])}
    if devices.get("error"):
        found["driver_error"] = str(devices["error"])
    if devices.get("driver"):
        found["driver"] = str(devices["driver"])
    if devices.get("cuda"):
        found["driver_cuda"] = str(devices["cuda"])
    compute = sorted({str(one["compute"]) for one in opened if "compute" in one})
    if len(compute) == 1:
        found["compute"] = compute[0]
    names = sorted({str(one["name"]) for one in opened if one.get("name")})
    if len(names) == 1:
        found["gpu"] = names[0]
    mig = [one["mig"] for one in opened if one.get("mig")]
    if mig:
        found["mig"] = any(mode[0] for mode in mig)
    states = {one["fabric"]["state"] for one in opened if one.get("fabric")} - {"not supported"}
    if states:
        bad = sorted(states - {"completed"})
        found["fabric"] = bad[0] if bad else "completed"
    log = devices.get("kernel_log") or {}
    if log.get("readable"):
        found["xid"] = tuple(
            sorted({str(one["code"]) for one in log["errors"] if one["kind"] == "xid"})
        )
    return found


def _network(plane: Mapping[str, Any], host: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if host.get("interface"):
        found["interface"] = str(host["interface"])
    if host.get("address"):
        found["address"] = str(host["address"])
    if "interface" in plane:
        state = plane["interface"]
        up = bool(state) and state["carrier"] and state["state"] in ("up", "unknown")
        found["interface_up"] = bool(up)
    if plane.get("resolves_to") is not None:
        found["hostname"] = str(plane.get("hostname", ""))
        found["resolves_to"] = tuple(plane["resolves_to"])
        found["resolves_to_loopback"] = any(
            one.startswith("127.") or one == "::1" for one in plane["resolves_to"]
        )
    return found


def _cards(cards: Mapping[str, Any] | None) -> dict[str, Value]:
    if cards is None:
        return {}
    active = [
        name
        for name, card in cards.items()
        if any(port["state"] == "ACTIVE" for port in card["ports"].values())
    ]
    return {
        "cards": tuple(cards),
        "active_cards": tuple(active),
        "efa_cards": sum(bool(card["efa"]) for card in cards.values()),
    }


def _memory(memory: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if "shared" in memory:
        found["shm_gib"] = round(memory["shared"]["total"] / _GIB, 1)
        found["shm_free_gib"] = round(memory["shared"]["free"] / _GIB, 1)
    if memory.get("available"):
        found["memory_free_gib"] = round(memory["available"] / _GIB, 1)
    for name in ("memlock", "nofile"):
        if name in limits:
            found[name] = "unlimited" if limits[name] is None else int(limits[name])
    return found


def _disks(places: Mapping[str, Any]) -> dict[str, Value]:
    there = {
        name: place
        for name, place in places.items()
        if place.get("free") is not None and place.get("kind") != "tmpfs"
    }
    if not there:
        return {}
    fullest = min(there, key=lambda name: there[name]["free"])
    return {
        "disk_free_gib": round(there[fullest]["free"] / _GIB, 1),
        "fullest_disk": str(there[fullest]["path"]),
    }


def _compilers(kernels: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name in ("nvcc", "ninja"):
        paths = [tools[name] for tools in kernels.get("tools", {}).values() if name in tools]
        if paths:
            found[name] = next((path for path in paths if not path), paths[0]) or "none"
    installed = kernels.get("installed") or {}
    if "vllm" in installed:
        found["vllm"] = str(installed["vllm"])
    return found
