"""Ask Ansible itself whether a value is one that a documented variable may have."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from vllm_ansible.inventory.specs import Option

# What an engine may say is judged by the planner, which explains it better.
JUDGED_HERE = ("choices", "elements", "type")


def accepts(option: Option, value: Any) -> bool:
    """Tell whether Ansible would accept a value for a role's variable."""
    spec = {key: option.spec[key] for key in JUDGED_HERE if key in option.spec}
    result = ArgumentSpecValidator({option.name: spec}).validate({option.name: value})
    return not result.error_messages
