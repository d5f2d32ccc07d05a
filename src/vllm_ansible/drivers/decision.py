"""What is done about the driver of one host, from one look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vllm_ansible.drivers.difference import Difference, Look, Wanted
from vllm_ansible.drivers.differences import differences
from vllm_ansible.drivers.mend import Mend, commands, together
from vllm_ansible.drivers.repository import Repository
from vllm_ansible.drivers.script import script
from vllm_ansible.drivers.state import lent, version


def decide(name: str, look: Look, wanted: Wanted, script_path: str = "") -> dict[str, Any]:
    """Return differences, steps, measurements for the gate, a summary and a script.

    script_path: where the administrator's script will lie; empty where this run has root.
    """
    found = differences(look, wanted)
    mend = together(one.mend for one in found)
    repository = wanted.repository
    return {
        "differences": [one.identifier for one in found],
        "steps": {**asdict(mend), "now": mend.now},
        "measurements": [_measurement(name, look, one, script_path) for one in found],
        "summary": summary(name, look),
        "values": values(look),
        "script": script(name, found, repository) if repository and found else "",
        "commands": _typed(repository, mend, look),
    }


def _typed(repository: Repository | None, mend: Mend, look: Look) -> list[str]:
    """Return what a person would type, the repository in words."""
    if not look["present"]:
        return []
    added = []
    if repository and mend.repository:
        added = [f"# add the repository {repository.url}, key {repository.fingerprint}"]
    return added + commands(mend, look["manager"])


def _measurement(name: str, look: Look, one: Difference, script_path: str) -> dict[str, Any]:
    by_hand = "; ".join(commands(one.mend, look["manager"]))
    manage = "set nvidia_driver_mode: manage"
    fix = f"{manage}, or as root on {name}: {by_hand}" if by_hand else manage
    if script_path:
        fix = f"an administrator of {name} runs {script_path} there; then run again"
    return {
        "what": f"{one.what} ({one.identifier})",
        "ok": False,
        "expected": one.expected,
        "found": one.found,
        "where": name,
        "fix": fix,
    }


def summary(name: str, look: Look) -> str:
    """Return one line about a host whose driver is as it must be."""
    if not look["present"]:
        return f"{name} has no NVIDIA device on its bus; the driver does not apply"
    module = look["module"]
    switches = f", {look['switches']} switches" if look["switches"] else ""
    if lent(look):
        switches += "; its machine's fabric manager is not seen from this container"
    return (
        f"{name}: driver {version(look) or 'none'} ({module['flavour'] or 'not loaded'}), "
        f"{_devices(look)}{switches}"
    )


def _devices(look: Look) -> str:
    """Say how many devices the bus shows, and how many of them a container was given."""
    on_bus, lacking = len(look["devices"]), look.get("withheld", 0)
    given = f", {on_bus - lacking} of them given to this container" if lacking else ""
    return f"{on_bus} device(s) on its bus{given}"


def values(look: Look) -> dict[str, Any]:
    """Return the figures behind the gate."""
    if not look["present"]:
        return {"applies": False}
    return {
        "applies": True,
        "version": version(look),
        "loaded": look["module"]["loaded"],
        "library": look["library"]["version"],
        "flavour": look["module"]["flavour"],
        "devices": len(look["devices"]) - look.get("withheld", 0),
        "switches": look["switches"],
        "held": _held(look["packages"]),
    }


def _held(packages: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(str(one["name"]) for one in packages if one["held"])
