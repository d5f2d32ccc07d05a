"""What hosts take from a bundle, and whether it was made for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.environment.lock import lock_of
from vllm_ansible.problem import PlanError

from .start import offline


def environment(given: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return the variables of all that fetches packages or models, over those of the site."""
    # The hub's library asks even for what is there, unless a mirror of the site is named.
    hub = {} if "HF_ENDPOINT" in given else {"HF_HUB_OFFLINE": "1"}
    return {**given, **hub, **offline(Path(directory))}


def measurements(
    host: Mapping[str, Any],
    hosts: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
    variables: Mapping[str, str],
    given: bool,
) -> list[dict[str, Any]]:
    """Return what the gate judges: architecture, system's Python, the engine's lock, precedence.

    given: the engine does not come from one of our locks.
    """
    python = ".".join(str(host["python"]).split(".")[:2])
    judged = [
        ("architecture", host["architecture"], [manifest["architecture"]], "--architecture"),
        ("Python of the system", python, manifest["host_pythons"], "--python"),
    ]
    try:
        lock = lock_of(host, hosts)
    except PlanError:
        # The stage install says why no lock serves this driver.
        lock = ""
    if lock and not given:
        judged.append(("engine", f"engine-{lock}", manifest["engine_locks"], "--lock"))
    found = [
        {
            "what": f"The bundle has packages for the {what} of {host['name']}",
            "ok": wanted in there,
            "expected": wanted,
            "found": ", ".join(there),
            "where": host["name"],
            "fix": f"make it with {option} {wanted} too: vllm-ansible bundle",
        }
        for what, wanted, there, option in judged
    ]
    overruled = variables.get("UV_OFFLINE") != "1"
    alone = {
        "what": "Packages come from the bundle alone",
        "ok": not overruled,
        "expected": "sources_environment in the inventory",
        "found": "on the command line (-e), which overrules the bundle" if overruled else "so",
        "where": "sources_environment",
        "fix": "put sources_environment into the inventory",
    }
    return [*found, alone]
