"""Jinja filters over the judgement of hosts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.host import readiness as host


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "host_lacks": host.lacks,
            "host_measurements": host.measurements,
            "alike_measurements": host.alike,
            "hosts_summary": host.summary,
        }
