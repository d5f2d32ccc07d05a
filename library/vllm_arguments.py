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
  environments:
    description: By engine, the variables of its own that its arguments are judged with.
    type: dict
    default: {}
  deep:
    description:
      - Whether to have the model's configuration checked, too, as the engine's start does. It takes
        some seconds more, and is worth them where an engine serves that would be stopped.
    type: bool
    default: false
  user:
    description:
      - User who asks where root connects, the one that runs the engines. A model's configuration
        may be code of its own, with C(--trust-remote-code).
    type: str
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
from ansible.module_utils.vllm_ansible.node.engine import arguments
from ansible.module_utils.vllm_ansible.node.failure import Failure


def main() -> None:
    """Look, ask, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "fingerprint": {"type": "str", "required": True},
            "engines": {"type": "dict", "required": True},
            "environments": {"type": "dict", "default": {}},
            "deep": {"type": "bool", "default": False},
            "user": {"type": "str"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    engines = {name: [str(one) for one in values] for name, values in wanted["engines"].items()}
    path = os.path.join(wanted["cluster_dir"], "evidence", "arguments.json")
    deep, environments = wanted["deep"], wanted["environments"]
    mark = wanted["fingerprint"]
    keys = {name: arguments.key(mark, values) for name, values in engines.items()}
    proofs = {
        name: arguments.key(mark, [*values, repr(sorted(environments.get(name, {}).items()))])
        for name, values in engines.items()
    }
    known = arguments.remembered(path)
    needed = proofs if deep else keys
    asked = {name: values for name, values in engines.items() if needed[name] not in known}
    if asked:
        try:
            answers = arguments.ask(wanted["python"], asked, deep, environments, wanted["user"])
        except Failure as error:
            module.fail_json(msg=str(error), **error.details)
        for name, answer in answers.items():
            if not answer["ok"]:
                module.fail_json(**arguments.refusal(name, answer))
        if not module.check_mode:
            proven = [one for one in proofs.values() if deep or one in known]
            arguments.remember(path, [*keys.values(), *proven])
    module.exit_json(changed=False, asked=sorted(asked))


if __name__ == "__main__":
    main()
