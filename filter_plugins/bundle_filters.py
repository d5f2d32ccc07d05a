"""Filters over a bundle of packages."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.bundle.hosts import environment, measurements
from vllm_ansible.bundle.start import MANIFEST


def bundle_environment(given: dict[str, str], directory: str) -> dict[str, str]:
    """Return the variables of all that fetches: sources_environment | bundle_environment(path)."""
    return environment(given, directory)


def bundle_measurements(
    host: dict[str, Any],
    hosts: list[dict[str, Any]],
    bundle: str,
    variables: dict[str, str],
    given: bool,
) -> list[dict[str, Any]]:
    """Return what a host needs of a bundle beside what it has, as the gate judges it."""
    manifest = json.loads((Path(bundle) / MANIFEST).read_text())
    return measurements(host, hosts, manifest, variables, given)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return them by name."""
        return {
            "bundle_environment": bundle_environment,
            "bundle_measurements": bundle_measurements,
        }
