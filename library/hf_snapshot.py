#!/usr/bin/python
"""Ask the model hub, or object storage, what models consist of."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hf_snapshot
short_description: Ask the model hub, or object storage, what models consist of
description:
  - Returns for each model of the hub that engines name the commit, and every file of it with its
    length and digest, by the hub's own record. Other formats of the same weights are left out.
  - A commit that was asked for before is not asked for again.
  - Of a model in object storage (C(s3://bucket/prefix)) the digests are those of its C(SHA256SUMS),
    of the store, or else those that M(object_digests) found, and a digest over names, lengths and
    digests stands for the commit. Missing digests are a warning. No object is read here; one
    that came or changed since is refused, outside of check mode.
  - huggingface_hub or boto3 asks, in the Python that O(python) names.
author: The vllm-ansible authors
options:
  engines:
    description: Engines as a plan or an inventory lists them.
    type: list
    elements: dict
    required: true
  models_dir:
    description: Directory of the models, where answers are kept.
    type: path
    required: true
  python:
    description: A Python that has huggingface_hub and boto3.
    type: path
    required: true
  program:
    description: The files of the program that asks, text by name; C(main.py) is the one to run.
    type: dict
    required: true
  include:
    description: Patterns of files that are wanted. Without any, all.
    type: list
    elements: str
    default: []
  exclude:
    description: Patterns of files that are not.
    type: list
    elements: str
    default: []
  token_path:
    description: File on the host with a token of the hub.
    type: path
  credentials_path:
    description: File on the host with credentials, as AWS_SHARED_CREDENTIALS_FILE names one.
    type: path
  environment:
    description: Further environment, such as proxies and mirrors.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Ask the hub what the models consist of
  hf_snapshot:
    engines:
      - {name: chat, model: deepseek-ai/DeepSeek-R1}
    models_dir: /opt/vllm-ansible/r1/models
    python: /opt/vllm-ansible/r1/tools/bin/python
    program: "{{ weights_scripts.hub }}"
"""

RETURN = r"""
manifests:
  description: By directory of the model, C(model), C(revision) and C(files), each with C(name),
    C(bytes), C(sha256), C(git) and, in object storage, C(etag) and C(read), whether the digest was
    found by reading.
  type: dict
  returned: success
evidence:
  description: That the hub was not asked. In check mode, where C(python) is not there yet.
  type: dict
  returned: check mode
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.weights import hub_manifest, models

UNRECORDED = (
    "no recorded digests for {0} bytes of {1}: they were read once more to hash them, and the "
    "digests are kept on this host. To record it for every host, where the model lies: "
    "find * -type f | xargs -d '\\n' sha256sum | aws s3 cp - {1}/SHA256SUMS"
)


def main() -> None:
    """Ask for each model once."""
    module = AnsibleModule(
        argument_spec={
            "engines": {"type": "list", "elements": "dict", "required": True},
            "models_dir": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "program": {"type": "dict", "required": True},
            "include": {"type": "list", "elements": "str", "default": []},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "token_path": {"type": "path", "no_log": False},
            "credentials_path": {"type": "path", "no_log": False},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    manifests: dict[str, Any] = {}
    # Check mode on a host that no run has prepared: what would be fetched is not known.
    unprepared = module.check_mode and not os.path.exists(module.params["python"])
    try:
        for engine in module.params["engines"]:
            model = models.model_of(engine)
            if model.from_outside and model.slug() not in manifests:
                if unprepared:
                    manifests[model.slug()] = {"model": model.name, "revision": "", "files": []}
                    continue
                manifest = hub_manifest.ask(model, module.params, module.check_mode)
                read = manifest.pop("read", 0)
                if read:
                    module.warn(UNRECORDED.format(read, model.name))
                manifests[model.slug()] = manifest
    except (models.WeightsError, Failure) as error:
        module.fail_json(msg=str(error), **error.details)
    if unprepared and manifests:
        names = ", ".join(one["model"] for one in manifests.values())
        told = f"{names}: the list of files was not read: the stage prepare installs what reads it"
        evidence = {"gate": "manifests", "summary": told, "values": {}}
        module.exit_json(changed=False, manifests=manifests, evidence=evidence)
    module.exit_json(changed=False, manifests=manifests)


if __name__ == "__main__":
    main()
