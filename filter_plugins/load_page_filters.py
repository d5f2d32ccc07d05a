"""Jinja filters of the load-test page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleFilterError

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.load_page import offer as load_page
from vllm_ansible.problem import PlanError


def load_page_backends(
    plan: Any, hosts: Any, names: Any, routers: Any = ()
) -> list[dict[str, Any]]:
    """Return name, model, address and port of every engine that the page offers."""
    try:
        found = load_page.backends(plain(plan)["engines"], plain(hosts), plain(names), routers)
    except PlanError as error:
        raise AnsibleFilterError(f"load_page_backends: {error}") from error
    return load_page.as_dicts(found)


def load_page_listing(backends: Any) -> str:
    """Return the list of engines as the page reads it."""
    return json.dumps(load_page.listing(backends), indent=2)


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "load_page_backends": load_page_backends,
            "load_page_listing": load_page_listing,
            "load_page_measurements": load_page.measurements,
            "load_page_port_measurements": load_page.port_measurements,
            "load_page_questions": load_page.questions,
            "load_page_subject_names": load_page.subject_names,
        }
