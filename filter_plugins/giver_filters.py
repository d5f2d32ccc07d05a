"""What a role asks about who gives its hosts, by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.provision.giver import giver


def giver_of(name: str) -> dict[str, Any]:
    """Return what is known of who gives hosts: provision_provider | giver_of."""
    one = giver(name)
    return {
        "gives": one.gives,
        "limits": one.limits,
        "notices": one.notices,
        "rents": one.rents,
        "restarts_bare": one.restarts_bare,
        "unfit": one.unfit,
    }


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"giver_of": giver_of}
