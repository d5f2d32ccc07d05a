#!/usr/bin/python
"""Find digests of models in object storage that were not recorded, detached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: object_digests
short_description: Find digests of models in object storage that were not recorded, detached
description:
  - A model in object storage may have a file C(SHA256SUMS), or its store a sha256 of each object.
    What neither has is read once, and its digest kept next to the models by name, length and ETag;
    M(hf_snapshot) finds it there.
  - Reading runs as the background task V(digests) and outlives the connection; wait for it with
    M(background_wait). One that runs for other files, or from elsewhere, is stopped first.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory.
    type: path
    required: true
  engines:
    description: Engines as a plan or an inventory lists them.
    type: list
    elements: dict
    required: true
  models_dir:
    description: Directory of the models, where digests are kept.
    type: path
    required: true
  python:
    description: A Python that has boto3.
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
  credentials_path:
    description: File on the host with credentials, as AWS_SHARED_CREDENTIALS_FILE names one.
    type: path
  environment:
    description: Further environment, such as proxies and AWS_ENDPOINT_URL.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Find digests that were not recorded
  object_digests:
    cluster_dir: /opt/vllm-ansible/r1
    engines:
      - {name: chat, model: "s3://models/team/tiny"}
    models_dir: /opt/vllm-ansible/r1/models
    python: /opt/vllm-ansible/r1/tools/bin/python
    program: "{{ weights_scripts.hub }}"
"""

RETURN = r"""
task:
  description: The background task that finds them, empty where no engine needs it.
  type: str
  returned: success
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.weights import hub_manifest, models

TASK = "digests"
PART_OF_DIGEST = ("models_dir", "include", "exclude", "credentials_path")
SECRET = re.compile("ACCESS_KEY|TOKEN|SECRET|PASSWORD")
Report = Callable[..., None]


def main() -> None:
    """Look for models in object storage, and start to find their digests."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "engines": {"type": "list", "elements": "dict", "required": True},
            "models_dir": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "program": {"type": "dict", "required": True},
            "include": {"type": "list", "elements": "str", "default": []},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "credentials_path": {"type": "path", "no_log": False},
            "environment": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        named = [models.model_of(engine) for engine in wanted["engines"]]
        stored = {model.slug(): model for model in named if model.source == "s3"}
        if stored and not module.check_mode:
            start(stored, wanted)
    except (models.WeightsError, background.ProcessError) as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=bool(stored), task=TASK if stored else "")


def start(stored: dict[str, models.Model], wanted: dict[str, Any]) -> None:
    """Start to find digests; a run that finds the same ones in the same way goes on."""
    background.start(
        os.path.join(wanted["cluster_dir"], "tasks"),
        TASK,
        lambda report: find(stored.values(), wanted, report),
        digest=purpose(stored, wanted),
        again=True,
    )


def purpose(stored: Iterable[str], wanted: dict[str, Any]) -> str:
    """Return a digest of what is read, and from where; no secret is part of it."""
    variables = {
        name: re.sub(r"//.*@", "//", str(value))
        for name, value in wanted["environment"].items()
        if not SECRET.search(name.upper())
    }
    told = {name: wanted[name] for name in PART_OF_DIGEST}
    text = json.dumps([sorted(stored), told, variables], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find(stored: Iterable[models.Model], wanted: dict[str, Any], report: Report) -> int:
    """Keep the digests of each model; return the bytes of files that nobody recorded any of."""
    os.umask(0o022)
    total = 0
    for model in stored:

        def tell(done: Any, of: Any, unit: str, text: str, where: str = model.name) -> None:
            report(done, of, unit, f"{where}: {text}")

        report(None, None, "", f"{model.name}: listing")
        total += int(hub_manifest.ask(model, wanted, report=tell, reads=True)["read"])
    return total


if __name__ == "__main__":
    main()
