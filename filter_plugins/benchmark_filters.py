"""Jinja filters over what is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.benchmark import served, tokenizer


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "engine_ramped_on": served.ramped_on,
            "engines_served_on": served.served_on,
            "load_client": served.client,
            "load_measurements": served.load_measurements,
            "load_tokenizer_refused": tokenizer.refused,
            "plan_measured": served.measured,
            "plan_of": served.plan_of,
        }
