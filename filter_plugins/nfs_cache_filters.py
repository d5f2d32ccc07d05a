"""Jinja filters over what a host mounts by NFS and caches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Filters run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vllm_ansible.nfs_cache import files, plan, verdict


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "nfs_cache_plan": plan.plan,
            "nfs_cache_conf": files.cachefilesd_conf,
            "nfs_cache_tag": files.tag_of,
            "nfs_cache_exports": files.exports,
            "nfs_cache_before": verdict.before,
            "nfs_cache_after": verdict.after,
            "nfs_cache_summary": verdict.summary,
        }
