#!/usr/bin/python
"""Look at the ranks behind a router, drain one, or let it serve again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: router_ranks
short_description: Look at the ranks behind a router, drain one, or let it serve again
description:
  - Asks HAProxy on its own socket, which only the service and root may use.
  - A rank that drains finishes its requests and gets no more; its checks continue.
author: The vllm-ansible authors
options:
  socket:
    description: HAProxy's socket for administration.
    type: path
    required: true
  rank:
    description: Name of one rank, such as V(rank-3). Needed by V(drain) and V(ready).
    type: str
    default: ""
  state:
    description: V(look) changes nothing.
    type: str
    choices: [look, drain, ready]
    default: look
"""

EXAMPLES = r"""
- name: Give one rank no more requests
  router_ranks:
    socket: /run/vllm-demo/router0/admin.sock
    rank: rank-3
    state: drain
"""

RETURN = r"""
ranks:
  description:
    - name, up, draining, passed (it listens and has computed a token), proven (passed and up),
      requests it has now from clients, and words, of each rank as it was found.
  type: list
  elements: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import router
from ansible.module_utils.vllm_ansible.node.failure import Failure


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "socket": {"type": "path", "required": True},
            "rank": {"type": "str", "default": ""},
            "state": {"choices": ["look", "drain", "ready"], "default": "look"},
        },
        supports_check_mode=True,
    )
    path, rank, state = (module.params[name] for name in ("socket", "rank", "state"))
    try:
        found = router.ranks(path)
        if state == "look":
            module.exit_json(changed=False, ranks=found)
        one = {each["name"]: each for each in found}.get(rank)
        if one is None:
            raise Failure(
                f"the router knows no {rank or 'rank without a name'}",
                expected=", ".join(each["name"] for each in found),
                found=rank,
                where=path,
                fix="name one of these",
            )
        changed = one["draining"] != (state == router.DRAIN)
        if changed and not module.check_mode:
            command = f"set server {router.BACKEND}/{rank} state {state}"
            said = router.refusal(router.ask(path, command))
            if said:
                raise Failure(f"the router refuses: {said}", where=path)
    except Failure as failure:
        module.fail_json(msg=str(failure), **failure.details)
    module.exit_json(changed=changed, ranks=found)


if __name__ == "__main__":
    main()
