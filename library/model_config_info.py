#!/usr/bin/python
"""Read what the planner has to know of models, where their files are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_config_info
short_description: Read the configurations of models where their files are
description:
  - Reads C(config.json), C(hf_quant_config.json) and the headers of safetensors, no weights.
    Changes nothing.
options:
  engines:
    description: Engines as a plan or an inventory lists them. Read are C(name), C(model),
      C(model_source) and the C(revision) among C(vllm_args).
    type: list
    elements: dict
    required: true
  models_dir:
    description: Directory of the models.
    type: path
    required: true
author: The vllm-ansible authors
"""

EXAMPLES = r"""
- name: Read the models' configurations
  model_config_info:
    engines: "{{ engines }}"
    models_dir: "{{ site_host.models_dir }}"
  register: __plan_configs
"""

RETURN = r"""
configs:
  description:
    - By engine, C(config) and C(quantization) as text and what the headers say of tensors, packed;
      or C(missing), why its configuration cannot be read here.
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.weights import model_files, models


def main() -> None:
    """Read, report."""
    module = AnsibleModule(
        argument_spec={
            "engines": {"type": "list", "elements": "dict", "required": True},
            "models_dir": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        places = {
            str(one["name"]): models.model_of(one).place(wanted["models_dir"])
            for one in wanted["engines"]
        }
    except models.WeightsError as error:
        module.fail_json(msg=str(error), **error.details)
    configs = {name: model_files.read(place) for name, place in places.items()}
    module.exit_json(changed=False, configs=configs)


if __name__ == "__main__":
    main()
