#!/usr/bin/python
"""Put the models of a host's engines where they are served from, detached."""

from __future__ import annotations

DOCUMENTATION = r"""
module: model_weights
short_description: Put the models of a host's engines where they are served from, detached
description:
  - Sources are the model hub, object storage, a directory that exists already, a model that a
    Python package carries, and a tiny model of random numbers.
  - A model is made under a temporary name and renamed when every header, size and shard has been
    checked. From then on one stat a file shows whether it is still the same.
  - A directory that was only named (C(path)) is checked and never written to.
  - Fetching runs as the background task V(weights) and outlives the connection; wait for it with
    M(background_wait), then look again with O(state=look).
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
    description: Engines as a plan or an inventory lists them. Read are C(name), C(model),
      C(model_source), C(hosts) and the C(revision) among C(vllm_args).
    type: list
    elements: dict
    required: true
  host:
    description: Name of this host, as C(hosts) of an engine lists it.
    type: str
    required: true
  sharing:
    description: Hosts that see the same directory of models; what they need is brought, too.
    type: list
    elements: str
    default: []
  state:
    description:
      - Whether to fetch what is missing, or only to look. V(whole) starts to read those files of
        directories that were only named of which blocks alone are known, as the background task
        V(weights-whole); what it found is compared from the next look on.
    type: str
    choices: [present, look, whole]
    default: present
  user:
    description: Who engines run as, and must be able to read directories that were only named.
    type: str
  python:
    description: Python of the engine's environment. Models from outside do without.
    type: path
  scripts:
    description:
      - Programs it runs, by name. The text of V(from_package) and V(random_model); of V(hub) the
        files, text by name, of which C(main.py) is the one to run.
    type: dict
    default: {}
  uv:
    description: The uv that fetches packages. Without it, the one in the cluster's tools.
    type: path
  token_path:
    description: File on the host with a token of the hub.
    type: path
  credentials_path:
    description: File on the host with credentials, as AWS_SHARED_CREDENTIALS_FILE names one.
    type: path
  environment:
    description: Further environment of what fetches, such as proxies and mirrors.
    type: dict
    default: {}
  store:
    description:
      - How models of the hub and of object storage come here. C(manifests), what each consists of,
        as M(hf_snapshot) returns it; C(upstream), for each model and file the hosts that get it
        C(before), nearest first, and those C(beside) that have it as well; C(addresses) and C(port)
        where they pass it on; C(address) of this host; C(outside), whether this host may ask there;
        C(key_file) with the cluster's key; C(python) that has huggingface_hub and boto3;
        C(hub_workers) and C(streams), how many files come at once from outside and from peers;
        C(stall_seconds); C(rehash), whether files that were verified before are read again.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Fetch the models of this host
  model_weights:
    cluster_dir: /opt/vllm-ansible/r1
    host: "{{ inventory_hostname }}"
    engines:
      - {name: chat, model: smollm2-135m-instruct, model_source: package}
    python: /opt/vllm-ansible/r1/environments/0123456789ab/bin/python
"""

RETURN = r"""
complete:
  description: Whether every model is in place and as it was checked.
  type: bool
  returned: success
missing:
  description: Models that are not, by engine.
  type: list
  elements: str
  returned: success
models:
  description:
    - By engine, C(path), C(bytes), C(files) and C(fingerprint) of each model in place; C(content),
      of a directory that was only named, has digests by file, of blocks and, once known, of all.
  type: dict
  returned: success
directories:
  description: By engine, the directory vLLM is given.
  type: dict
  returned: success
task:
  description: The background task that was started, empty when there is nothing to do.
  type: str
  returned: success
"""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.failure import Failure
from ansible.module_utils.vllm_ansible.node.process import background
from ansible.module_utils.vllm_ansible.node.weights import fetch as weights
from ansible.module_utils.vllm_ansible.node.weights import models, named_models

TASK, WHOLE = "weights", "weights-whole"


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "models_dir": {"type": "path"},
            "engines": {"type": "list", "elements": "dict", "required": True},
            "host": {"type": "str", "required": True},
            "sharing": {"type": "list", "elements": "str", "default": []},
            "state": {"choices": ["present", "look", "whole"], "default": "present"},
            "user": {"type": "str"},
            "python": {"type": "path"},
            "scripts": {"type": "dict", "default": {}},
            "uv": {"type": "path"},
            "token_path": {"type": "path", "no_log": False},
            "credentials_path": {"type": "path", "no_log": False},
            "environment": {"type": "dict", "default": {}},
            "store": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    wanted["models_dir"] = wanted["models_dir"] or os.path.join(wanted["cluster_dir"], "models")
    wanted["uv"] = wanted["uv"] or os.path.join(wanted["cluster_dir"], "tools/bin/uv")
    try:
        needed = {
            engine: model
            for host in [wanted["host"], *wanted["sharing"]]
            for engine, model in models.wanted_models(wanted["engines"], host).items()
        }
        records = {
            engine: record(model, wanted, module.check_mode) for engine, model in needed.items()
        }
        if wanted["state"] == "whole":
            started = read_whole(needed, records, wanted, module.check_mode)
            module.exit_json(changed=False, task=WHOLE if started else "")
        again = [engine for engine, model in needed.items() if reread(model, wanted)]
        missing = [one for one, found in records.items() if found is None or one in again]
        changed = bool(missing) and wanted["state"] == "present"
        if changed and not module.check_mode:
            fetch([needed[engine] for engine in missing], needed.values(), wanted)
    except (models.WeightsError, background.ProcessError, Failure) as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(
        changed=changed,
        complete=not missing,
        missing=missing,
        models={
            engine: models.summary(found, named_models.whole(needed[engine], wanted["models_dir"]))
            for engine, found in records.items()
            if found
        },
        directories={engine: model.place(wanted["models_dir"]) for engine, model in needed.items()},
        task=TASK if changed else "",
    )


def record(model: models.Model, wanted: dict[str, Any], check: bool) -> Any:
    """Return what is known of a model in place; one that was only named is checked here and now."""
    found = models.look(model, wanted["models_dir"])
    if model.source == "path":
        place = model.place(wanted["models_dir"])
        if found is None:
            found = models.make_record(model, place, place)
            if not check:
                models.write_record(model, wanted["models_dir"], found)
        named_models.expect_readable(place, wanted["user"])
    return found


def reread(model: models.Model, wanted: dict[str, Any]) -> bool:
    """Tell whether a model that is in place is to be proven again.

    One that was made here is read at once, and made again only where it has changed.
    """
    if not wanted["store"].get("rehash") or wanted["state"] != "present":
        return False
    if model.from_outside:
        return True
    if model.source == "path":
        return False
    known = models.look(model, wanted["models_dir"])
    if known is None:
        return False
    found = models.make_record(model, known["path"], known["path"], known["revision"])
    return bool(found["fingerprint"] != known["fingerprint"])


def read_whole(
    needed: dict[str, models.Model], records: dict[str, Any], wanted: dict[str, Any], check: bool
) -> bool:
    """Start to read the models of which blocks alone are known, and tell whether there is one."""
    if wanted["store"].get("rehash") and not check:
        for model in needed.values():
            named_models.forget(model, wanted["models_dir"])
    lacking = {
        model.slug(): (model, records[engine])
        for engine, model in needed.items()
        if model.source == "path"
        and named_models.lacking(model, wanted["models_dir"], records[engine])
    }
    if lacking and not check:
        background.start(
            os.path.join(wanted["cluster_dir"], "tasks"),
            WHOLE,
            lambda report: [
                named_models.hash_whole(model, wanted["models_dir"], found, report)
                for model, found in lacking.values()
            ],
            digest=hashlib.sha256(json.dumps(sorted(lacking)).encode()).hexdigest(),
            again=True,
        )
    return bool(lacking)


def fetch(
    missing: list[models.Model], needed: Iterable[models.Model], wanted: dict[str, Any]
) -> None:
    """Start to fetch what is missing, each model once; one that is fetching goes on."""
    made = [model for model in missing if not model.from_outside]
    if made and (not wanted["python"] or not os.path.exists(wanted["python"])):
        raise models.WeightsError(
            f"{made[0].name} cannot be fetched without the engine's environment",
            expected="the engine's Python",
            found=wanted["python"] or "none",
            where=wanted["cluster_dir"],
            fix="run the stage install first",
        )
    different = list({model.slug(): model for model in missing}.values())
    # Of all models, not of those still missing: these become fewer while they are fetched.
    text = json.dumps([wanted["models_dir"], sorted({model.slug() for model in needed})])
    background.start(
        os.path.join(wanted["cluster_dir"], "tasks"),
        TASK,
        lambda report: weights.fetch_all(different, wanted, report),
        digest=hashlib.sha256(text.encode()).hexdigest(),
        again=True,
    )


if __name__ == "__main__":
    main()
