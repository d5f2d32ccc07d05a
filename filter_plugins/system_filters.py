"""Jinja filters over the judgement of what an operating system gives to serving."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.accelerators.instances import efa_cards
from vllm_ansible.system import told
from vllm_ansible.system.judge import judge, to_look_at, to_manage
from vllm_ansible.system.limit_files import UNLIMITED
from vllm_ansible.system.limits import OPEN_FILES
from vllm_ansible.system.wants import wants

Facts = Mapping[str, Any]


def system_request(
    host: Facts, hosts: Sequence[Facts], given: Facts, modes: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of the module system_info for one host."""
    want = wants(host, hosts, given)
    return {
        "concerns": to_look_at(modes, want),
        "limits": {"nofile": OPEN_FILES, "memlock": UNLIMITED},
        "peers": sorted(want.peers.values()),
        "interface": want.interface,
        "first_port": want.first_port,
        "mark": want.mark,
        "efa_cards": efa_cards(),
    }


def system_judged(
    look: Facts, host: Facts, hosts: Sequence[Facts], given: Facts, modes: Mapping[str, str]
) -> dict[str, Any]:
    """Return the judgement of every concern of one host by name."""
    return judge(modes, look, wants(host, hosts, given))


def system_to_manage(judged: Facts, host: Facts) -> list[str]:
    """Return the concerns that are to be mended now."""
    return to_manage(judged, host["privileges"] == "root")


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "system_request": system_request,
            "system_judged": system_judged,
            "system_to_manage": system_to_manage,
            "system_measurements": told.measurements,
            "system_summary": told.summary,
            "system_values": told.values,
        }
