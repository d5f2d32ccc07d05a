"""What is done about the Enflame driver of one host, from one look at it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from vllm_ansible.drivers.enflame.difference import Difference, Look, Wanted, modules, together
from vllm_ansible.drivers.enflame.differences import differences
from vllm_ansible.node.drivers.enflame_driver import MARK


def decide(name: str, look: Look, wanted: Wanted) -> dict[str, Any]:
    """Return differences, steps, measurements for the gate, and what a person would type."""
    found = differences(look, wanted)
    mend = together(one.mend for one in found)
    steps: dict[str, Any] = {"unload": [], "install": False, "load": []}
    told = [_measurement(name, look, wanted, one) for one in found]
    if look["present"]:
        steps = {**modules(look, wanted, mend), "install": mend.install}
    return {
        "differences": [one.identifier for one in found],
        "steps": {**steps, "now": bool(mend)},
        "measurements": told,
        "unmended": [said for said, one in zip(told, found, strict=True) if not one.mend],
        "summary": summary(name, look),
        "values": values(look),
        "commands": commands(steps, wanted, look),
    }


def commands(steps: dict[str, Any], wanted: Wanted, look: Look) -> list[str]:
    """Return the commands of root that do these steps, and forget what was begun before."""
    lines = [f"rmmod {one}" for one in steps["unload"]]
    if steps["install"]:
        file = PurePosixPath(wanted.file).name or "FILE.run"
        lines.append(shlex.join(["bash", f"./{file}", *wanted.arguments]))
    lines += [f"modprobe {one}" for one in steps["load"]]
    # Whoever installs by hand ends what a run began; its mark would tell otherwise for ever.
    return lines + ([f"rm /{MARK}"] if steps["install"] and look["begun"] else [])


def _measurement(name: str, look: Look, wanted: Wanted, one: Difference) -> dict[str, Any]:
    fix = one.fix
    if one.mend:
        steps = {**modules(look, wanted, one.mend), "install": one.mend.install}
        fix = f"as root on {name}: {'; '.join(commands(steps, wanted, look))}"
        if not wanted.manage:
            fix = f"set enflame_driver_mode: manage, or {fix}"
    return {
        "what": f"{one.what} ({one.identifier})",
        "ok": False,
        "expected": one.expected,
        "found": one.found,
        "where": name,
        "fix": fix.replace("HOST", name),
    }


def summary(name: str, look: Look) -> str:
    """Return one line about a host whose driver is as it must be."""
    if not look["present"]:
        return f"{name} has no Enflame device on its bus; the driver does not apply"
    peers = ", network cards reach device memory" if look["peer_memory"] else ""
    count = look["answering"]
    silent = len(look["devices"]) - count
    rest = f" and {silent} on the bus not" if silent > 0 else ""
    driver = look["loaded"] or "none"
    return f"{name}: Enflame driver {driver}, {count} device(s) answer{rest}{peers}"


def values(look: Look) -> dict[str, Any]:
    """Return the figures behind the gate."""
    if not look["present"]:
        return {"applies": False}
    names: Sequence[str] = ("loaded", "installed", "tool", "answering", "peer_memory", "kernel")
    return {"applies": True, "devices": len(look["devices"]), **{one: look[one] for one in names}}
