"""Jinja filters over the evidence of the stage verify."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.plan.fabric import host_environment
from vllm_ansible.problem import PlanError
from vllm_ansible.verify import due
from vllm_ansible.verify.accepted import accepted
from vllm_ansible.verify.environment import of_engines
from vllm_ansible.verify.kept import kept
from vllm_ansible.verify.metrics import textfile


def verification_host_environment(
    host: Mapping[str, Any], installed: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return what site and fabric give to ranks of a measurement, as to engines.

    installed: the engine's environment, which may be an image.
    """
    own = installed or {}
    return host_environment(host, contained=bool(own.get("image") or own.get("apptainer")))


def verification_fingerprint(
    hosts: Sequence[Mapping[str, Any]], environment: str, settings: Mapping[str, Any]
) -> str:
    """Return one value for all that a measurement of links depends on."""
    return due.fingerprint(hosts, environment, settings)


def verification_reason(evidence: Mapping[str, Any], fingerprint: str, most_hours: float) -> str:
    """Return why links have to be measured now; nothing while the kept evidence holds."""
    return due.reason(evidence, fingerprint, datetime.now(UTC), float(most_hours))


def verification_kept(
    fingerprint: str,
    before: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the evidence to keep of the verdicts of this run's gates."""
    return kept(fingerprint, before, verdicts, datetime.now(UTC))


def verification_json(evidence: Mapping[str, Any]) -> str:
    """Return the evidence as the file that keeps it."""
    return json.dumps(evidence, indent=1, default=str) + "\n"


def verification_metrics(evidence: Mapping[str, Any], cluster: str) -> str:
    """Return the evidence as a textfile for Prometheus' node exporter."""
    when = datetime.fromisoformat(evidence["measured_at"]).timestamp()
    links = evidence.get("links", {})
    return textfile(cluster, bool(evidence["accepted"]), when, evidence["rows"], links)


def verification_accepted(names: Sequence[str]) -> list[str]:
    """Return the accepted checks, or refuse a name that no check has."""
    try:
        return accepted(names)
    except PlanError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "verification_accepted": verification_accepted,
            "verification_environment": of_engines,
            "verification_environment_of": lambda host, engines: of_engines(engines, host),
            "verification_host_environment": verification_host_environment,
            "verification_fingerprint": verification_fingerprint,
            "verification_reason": verification_reason,
            "verification_kept": verification_kept,
            "verification_json": verification_json,
            "verification_metrics": verification_metrics,
        }
