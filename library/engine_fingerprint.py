#!/usr/bin/python
"""Ask a server what it computes for fixed prompts, once for each of its starts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_fingerprint
short_description: Ask a server what it computes for fixed prompts, once for each of its starts
description:
  - Asks for the log probabilities of the tokens of a few texts, and for the likeliest ones after
    them. Servers with the same weights give the same numbers, but for their order of adding up.
  - A start of the server that is known already is not asked. Neither is any in check mode.
author: The vllm-ansible authors
options:
  url:
    description: Base address of the server, without C(/v1).
    type: str
    required: true
  api_key_file:
    description: File on this host that holds the key.
    type: path
    required: true
  model:
    description: Name under which the model is served.
    type: str
    required: true
  cluster:
    description: The cluster that owns the server.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
  process:
    description: Name of the serving process.
    type: str
    required: true
  known:
    description: The C(instance) of the start that was asked before, empty when none was.
    type: str
    default: ""
  alongside:
    description: Base addresses of servers that are kept busy meanwhile, as in M(completion_check).
    type: list
    elements: str
    default: []
  timeout_seconds:
    description: Longest wait for the numbers of one text.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Ask what the server computes
  engine_fingerprint:
    url: http://10.0.0.5:8000
    api_key_file: /opt/vllm-ansible/r1/secrets/api_key
    model: r1
    cluster: r1
    cluster_dir: /opt/vllm-ansible/r1
    process: r1-serve
"""

RETURN = r"""
asked:
  description: Whether it was asked.
  type: bool
  returned: success
instance:
  description: This start of the server, empty when it does not run.
  type: str
  returned: success
prompts:
  description: Of each text, its C(tokens) and C(logprobs), then C(greedy) and C(greedy_logprobs).
  type: list
  returned: when it answered
seconds:
  description: What that took.
  type: float
  returned: when it answered
refused:
  description: Why there are no numbers.
  type: str
  returned: when it was asked and gave none
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.completion import Unanswered, kept_stepping
from ansible.module_utils.vllm_ansible.node.engine.fingerprint import fingerprint
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks


def main() -> None:
    """Look, ask and report."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "api_key_file": {"type": "path", "required": True, "no_log": False},
            "model": {"type": "str", "required": True},
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "process": {"type": "str", "required": True},
            "known": {"type": "str", "default": ""},
            "alongside": {"type": "list", "elements": "str", "default": []},
            "timeout_seconds": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        found = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    instance = str(found.get(wanted["process"], {}).get("instance") or "")
    if module.check_mode or (instance and instance == wanted["known"]):
        module.exit_json(changed=False, asked=False, instance=instance)
    try:
        key = Path(wanted["api_key_file"]).read_text().strip()
        with kept_stepping(wanted["alongside"], key, wanted["model"]):
            told = fingerprint(wanted["url"], key, wanted["model"], wanted["timeout_seconds"])
    except (OSError, Unanswered) as error:
        module.exit_json(changed=False, asked=True, instance=instance, refused=str(error))
    module.exit_json(changed=False, asked=True, instance=instance, **told)


if __name__ == "__main__":
    main()
