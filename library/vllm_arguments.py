#!/usr/bin/python
"""Check the arguments of engines against the parser of the installed vLLM."""

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_arguments
short_description: Check the arguments of engines against the parser of the installed vLLM
description:
  - Runs vLLM's own C(vllm serve) up to where it would start, so a misspelt argument or a wrong
    type is known before anything is stopped.
  - What was accepted is remembered with the fingerprint of the environment, since asking takes
    some seconds. Changes nothing.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  python:
    description: Python of the engine's environment.
    type: path
    required: true
  fingerprint:
    description: Fingerprint of the engine's environment.
    type: str
    required: true
  engines:
    description: By engine, what follows C(vllm serve), the model first.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check the arguments before anything restarts
  vllm_arguments:
    cluster_dir: /opt/vllm-ansible/r1
    python: /opt/vllm-ansible/r1/environments/0123456789ab/bin/python
    fingerprint: 5f3c
    engines:
      chat: [/models/m, --max-model-len, "2048"]
"""

RETURN = r"""
asked:
  description: Engines whose arguments were not remembered from before.
  type: list
  elements: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node import arguments


def main() -> None:
    """Look, ask, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "engines": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    engines = {name: [str(one) for one in values] for name, values in wanted["engines"].items()}
    path = os.path.join(wanted["cluster_dir"], "evidence", "arguments.json")
    keys = {name: arguments.key(wanted["fingerprint"], values) for name, values in engines.items()}
    known = arguments.remembered(path)
    asked = {name: values for name, values in engines.items() if keys[name] not in known}
    if asked:
        try:
            answers = arguments.ask(wanted["python"], asked)
        except arguments.ArgumentsError as error:
            module.fail_json(msg=str(error), **error.details)
        for name, answer in answers.items():
            if not answer["ok"]:
                module.fail_json(**arguments.refusal(name, answer))
        if not module.check_mode:
            arguments.remember(path, list(keys.values()))
    module.exit_json(changed=False, asked=sorted(asked))


if __name__ == "__main__":
    main()
