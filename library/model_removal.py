#!/usr/bin/python
"""Remove the models that no engine needs any more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_removal
short_description: Remove the models that no engine needs any more
description:
  - Removes models that M(model_weights) made, never a directory that was only named.
  - A model stays that one of the engines serves, whose files a process of this host uses, or that
    a run is completing.
  - Where the directory of models is not the cluster's own, others may use what lies there, on
    hosts that cannot be seen from here. There only models go that were named.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  models_dir:
    description: Directory of the models. Without it, C(models) in the cluster's directory.
    type: path
  engines:
    description: Engines whose models stay, as an inventory or a plan lists them.
    type: list
    elements: dict
    required: true
  names:
    description: Models to remove, by the names of their directories. Without any, all unused ones.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Remove unused models
  model_removal:
    cluster_dir: /opt/vllm-ansible/r1
    engines: "{{ engines }}"
"""

RETURN = r"""
removed:
  description: C(name) and C(bytes) of what was removed.
  type: list
  elements: dict
  returned: success
stays:
  description: C(name), C(bytes) and C(why) of what stays.
  type: list
  elements: dict
  returned: success
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.weights import unused_models
from ansible.module_utils.vllm_ansible.node.weights.safetensors import WeightsError


def refusal(wanted: dict[str, Any], found: list[unused_models.Kept]) -> dict[str, str]:
    """Return why nothing may be removed; empty where it may."""
    here = {one.name: one for one in found}
    own = os.path.realpath(wanted["models_dir"]).startswith(
        os.path.realpath(wanted["cluster_dir"]) + "/"
    )
    place = wanted["models_dir"]
    if not own and not wanted["names"]:
        return {
            "msg": f"{place} is not this cluster's own: others may use what is there",
            "expected": "names of the models that are to go",
            "found": ", ".join(sorted(here)) or "no model",
            "where": wanted["models_dir"],
            "fix": 'name them: -e \'{"weights_prune": ["NAME"]}\'',
        }
    for name in wanted["names"]:
        if name in here and here[name].why:
            return {
                "msg": f"{name} cannot be removed: {here[name].why}",
                "expected": "a model that nothing needs",
                "found": here[name].why,
                "where": os.path.join(place, name),
                "fix": "take its engine out of the inventory and run site.yml, or end what uses it",
            }
    return {}


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "models_dir": {"type": "path"},
            "engines": {"type": "list", "elements": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    wanted["models_dir"] = wanted["models_dir"] or os.path.join(wanted["cluster_dir"], "models")
    try:
        found = unused_models.look(wanted["models_dir"], wanted["engines"])
        why_not = refusal(wanted, found)
        if why_not:
            module.fail_json(**why_not)
        go = [one for one in found if not one.why and one.name in (wanted["names"] or [one.name])]
        if not module.check_mode:
            unused_models.remove(wanted["models_dir"], [one.name for one in go])
    except WeightsError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"models cannot be removed: {error}",
            expected="a directory of models that this user may change",
            found=str(error),
            where=error.filename or wanted["models_dir"],
            fix="connect as the user who set the cluster up, or fix what is named",
        )
    module.exit_json(
        changed=bool(go),
        removed=[{"name": one.name, "bytes": one.bytes} for one in go],
        stays=[
            {"name": one.name, "bytes": one.bytes, "why": one.why or "it was not named"}
            for one in found
            if one not in go
        ],
    )


if __name__ == "__main__":
    main()
