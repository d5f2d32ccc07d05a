"""Jinja filters of the verb upgrade."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.upgrade import former, turns


def of_plain(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that is given values without Ansible's own types."""
    return lambda *values: work(*map(plain, values))


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "upgrade_back": of_plain(former.back),
            "upgrade_begun": of_plain(former.begun),
            "upgrade_door_hosts": of_plain(turns.door_hosts),
            "upgrade_door_servers": of_plain(turns.all_door_servers),
            "upgrade_drained": of_plain(former.drained),
            "upgrade_failed": of_plain(former.failed),
            "upgrade_failure": of_plain(former.failure),
            "upgrade_kept": of_plain(former.kept),
            "upgrade_load": of_plain(former.load),
            "upgrade_lost": of_plain(former.lost),
            "upgrade_measurements": of_plain(turns.measurements),
            "upgrade_next": of_plain(turns.next_plan),
            "upgrade_rates": of_plain(former.rate_measurements),
            "upgrade_restored": of_plain(former.restored),
            "upgrade_summary": of_plain(turns.summary),
            "upgrade_turns": of_plain(turns.turns),
        }
