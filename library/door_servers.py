#!/usr/bin/python
"""Look at an engine's servers behind the door, drain them, or let them serve again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: door_servers
short_description: Look at an engine's servers behind the door, drain them, or let them serve again
description:
  - Asks HAProxy on its own socket, which only the service and root may use.
  - A server that drains finishes its requests and gets no more; its checks continue. Where it was
    the only one of its model, requests get 503 with Retry-After meanwhile.
author: The vllm-ansible authors
options:
  socket:
    description: Socket of the door's worker.
    type: path
    required: true
  servers:
    description: Names that the engine's servers may have at the door; those that are there count.
    type: list
    elements: str
    required: true
  engines:
    description:
      - Addresses with ports where the engine's own servers answer. Behind a router the door does
        not know them.
    type: list
    elements: str
    default: []
  state:
    description: V(look) changes nothing.
    type: str
    choices: [look, drain, ready]
    default: look
"""

EXAMPLES = r"""
- name: Give an engine no more requests
  door_servers:
    socket: /run/vllm-demo/door/admin.sock
    servers: [chat-serve]
    state: drain
"""

RETURN = r"""
servers:
  description:
    - name, backend, up, draining, requests it has now (of the door, or as the engine itself says,
      whichever are more) and words, of each server as it was found.
  type: list
  elements: dict
  returned: success
requests:
  description: Requests of all of them, as the door or as O(engines) say, whichever are more.
  type: int
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import haproxy_door as door
from ansible.module_utils.vllm_ansible.node.failure import Failure


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "socket": {"type": "path", "required": True},
            "servers": {"type": "list", "elements": "str", "required": True},
            "engines": {"type": "list", "elements": "str", "default": []},
            "state": {"choices": ["look", "drain", "ready"], "default": "look"},
        },
        supports_check_mode=True,
    )
    path, names, state = (module.params[name] for name in ("socket", "servers", "state"))
    try:
        found = door.servers(path, names)
        left = [one for one in found if state != "look" and not door.is_in(one, state)]
        for one in left if not module.check_mode else ():
            door.set_state(path, one, state)
    except Failure as failure:
        module.fail_json(msg=str(failure), **failure.details)
    requests = door.all_requests(found, module.params["engines"])
    module.exit_json(changed=bool(left), servers=found, requests=requests)


if __name__ == "__main__":
    main()
