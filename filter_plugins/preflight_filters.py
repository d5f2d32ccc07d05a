"""Jinja filters of the role preflight."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.verify.preflight import repairs, request


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "cuda_release": request.cuda_of,
            "preflight_failing": repairs.failing_on,
            "preflight_request": request.request,
            "preflight_resettable": repairs.resettable,
        }
