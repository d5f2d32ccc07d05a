#!/usr/bin/python
"""Ask a served model a question and judge the answer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: completion_check
short_description: Ask a served model a question and judge the answer
description:
  - Sends one greedy chat completion with the key, and one request without it, which must be
    refused. A list of models or a health page proves nothing; an answer does.
  - Reports C(ok) instead of failing, so that the logs of all ranks can be read first.
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
  question:
    description: What to ask.
    type: str
    default: What is the capital of France?
  expect:
    description:
      - Text the answer must contain, in any case. V(Paris) may also stand there by its name in
        other languages.
      - When it is not in O(max_tokens) tokens that were cut, the question is asked once more with
        32 times as many, since some models think aloud first.
      - Empty judges that there is an answer, one that does more than repeat a token.
    type: str
    default: ""
  reasoning:
    description: Whether reasoning must come apart from the answer. Needs O(max_tokens) for both.
    type: bool
    default: false
  random:
    description: Whether its weights are random, so that the numbers alone are judged.
    type: bool
    default: false
  numbers:
    description:
      - Whether log probabilities must come with the answer. Dynamo 1.6 leaves them out; its
        engines are asked for them directly.
    type: bool
    default: true
  max_tokens:
    description: Longest answer, in tokens.
    type: int
    default: 32
  timeout_seconds:
    description: Longest wait for the whole answer. The first may include compilation.
    type: int
    default: 300
  guarded:
    description:
      - Whether what lies outside C(/v1) must be refused without a key, too. An engine on loopback
        behind Dynamo has a front end that leaves C(/version) and C(/metrics) open.
    type: bool
    default: true
  alongside:
    description:
      - Base addresses of servers that are kept busy meanwhile, for engines whose data-parallel
        ranks step only when each has a request.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Ask the model
  completion_check:
    url: http://10.0.0.5:8000
    api_key_file: /opt/vllm-ansible/r1/secrets/api_key
    model: r1
    expect: Paris
"""

RETURN = r"""
ok:
  description: Whether the answer proves a working model.
  type: bool
  returned: success
reason:
  description: Why it does not, empty when it does.
  type: str
  returned: success
wrong:
  description: Whether it serves and must not, for its answer is no proof or needs no key.
  type: bool
  returned: success
answer:
  description: What the model said.
  type: str
  returned: when it answered
reasoning:
  description: What the model thought before, where its parser separates it from the answer.
  type: str
  returned: when it reasoned
seconds:
  description: From the request to the whole answer.
  type: float
  returned: when it answered
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.completion import (
    LONGER,
    Unanswered,
    ask,
    judge,
    kept_stepping,
    status_of,
)


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "api_key_file": {"type": "path", "required": True, "no_log": False},
            "model": {"type": "str", "required": True},
            "question": {"type": "str", "default": "What is the capital of France?"},
            "expect": {"type": "str", "default": ""},
            "reasoning": {"type": "bool", "default": False},
            "random": {"type": "bool", "default": False},
            "numbers": {"type": "bool", "default": True},
            "max_tokens": {"type": "int", "default": 32},
            "timeout_seconds": {"type": "int", "default": 300},
            "guarded": {"type": "bool", "default": True},
            "alongside": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    # vLLM guards the first by itself, the second only with packages/vllm_guard.
    for path in ("/v1/models", "/version")[: 2 if wanted["guarded"] else 1]:
        if status_of(f"{wanted['url']}{path}") == 200:
            reason = f"the server answers {path} without a key"
            module.exit_json(changed=False, ok=False, wrong=True, reason=reason)
    try:
        key = Path(wanted["api_key_file"]).read_text().strip()
        reply, reason = _asked(wanted, key, wanted["max_tokens"])
        if reason and wanted["expect"] and reply["finish_reason"] == "length":
            # It may have room for no more than that: then what it said is judged.
            with suppress(Unanswered):
                reply, reason = _asked(wanted, key, LONGER * wanted["max_tokens"])
    except (OSError, Unanswered) as error:
        module.exit_json(changed=False, ok=False, wrong=False, reason=str(error))
    module.exit_json(changed=False, ok=not reason, wrong=bool(reason), reason=reason, **reply)


def _asked(wanted: dict[str, Any], key: str, tokens: int) -> tuple[dict[str, Any], str]:
    """Return the answer of at most so many tokens, and why it is no proof."""
    with kept_stepping(wanted["alongside"], key, wanted["model"]):
        reply = ask(
            wanted["url"],
            key,
            wanted["model"],
            wanted["question"],
            tokens,
            wanted["timeout_seconds"],
        )
    return reply, judge(
        reply, wanted["expect"], wanted["reasoning"], wanted["random"], wanted["numbers"]
    )


if __name__ == "__main__":
    main()
