#!/usr/bin/python
"""Give a running door its clients, or its settings, and end no request."""

from __future__ import annotations

DOCUMENTATION = r"""
module: haproxy_door
short_description: Give a running door its clients, or its settings, and end no request
description:
  - Asks HAProxy on its sockets, which only the service and root may use, what it runs with.
  - Where the settings are others, a new worker is started with the files as they are, and the old
    one ends the requests it has. Where only the clients are others, they are replaced in the
    running worker in one step.
  - In check mode a door that does not run yet is no failure.
author: The vllm-ansible authors
options:
  admin_socket:
    description: Socket of the worker.
    type: path
    required: true
  master_socket:
    description: Socket of the master.
    type: path
    required: true
  digest:
    description: Digest of the settings, which they hold as their description.
    type: str
    required: true
  clients_map:
    description: File of the clients, by its name in the settings.
    type: path
    required: true
  log:
    description: File to name in a failure.
    type: str
    required: true
  seconds:
    description: How long to wait for a worker with the settings.
    type: float
    default: 30
"""

EXAMPLES = r"""
- name: Give the door what was written
  haproxy_door:
    admin_socket: /run/vllm-demo/door/admin.sock
    master_socket: /run/vllm-demo/door/master.sock
    digest: "{{ door_digest }}"
    clients_map: /opt/vllm-ansible/demo/door/settings/clients.map
    log: /opt/vllm-ansible/demo/logs/door.log
"""

RETURN = r"""
action:
  description: V(none), V(clients) where they were replaced, or V(reload).
  type: str
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine import haproxy_door as door
from ansible.module_utils.vllm_ansible.node.failure import Failure

# A worker that was started just now has not opened its socket yet.
STARTING_SECONDS = 15


def running(admin: str, seconds: float) -> str:
    """Return the digest of what runs, as soon as anything answers; empty where nothing does."""
    end = time.monotonic() + seconds
    found: str = door.digest(admin)
    while not found and time.monotonic() < end:
        time.sleep(0.1)
        found = door.digest(admin)
    return found


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "admin_socket": {"type": "path", "required": True},
            "master_socket": {"type": "path", "required": True},
            "digest": {"type": "str", "required": True},
            "clients_map": {"type": "path", "required": True},
            "log": {"type": "str", "required": True},
            "seconds": {"type": "float", "default": 30},
        },
        supports_check_mode=True,
    )
    given = module.params
    admin, path = given["admin_socket"], given["clients_map"]
    try:
        found = running(admin, 0 if module.check_mode else min(STARTING_SECONDS, given["seconds"]))
        if not found and module.check_mode:
            module.exit_json(changed=False, action="none")
        action = decide(found, given["digest"], admin, path)
        if not module.check_mode:
            act(action, given)
    except Failure as failure:
        module.fail_json(msg=str(failure), **failure.details)
    except FileNotFoundError:  # check mode has written none
        action = "none"
    module.exit_json(changed=action != "none", action=action)


def decide(found: str, wanted: str, admin: str, path: str) -> str:
    """Return what has to be done."""
    if found != wanted:
        return "reload"
    return "none" if door.clients(admin, path) == of_file(path) else "clients"


def of_file(path: str) -> dict[str, str]:
    """Return the clients as they were written."""
    with open(path, encoding="utf-8") as file:
        found: dict[str, str] = door.entries(file.read())
    return found


def act(action: str, given: dict[str, str]) -> None:
    """Do it; raise Failure where the worker runs with other settings in the end."""
    if action == "clients":
        door.replace(given["admin_socket"], given["clients_map"], of_file(given["clients_map"]))
    if action != "reload":
        return
    door.reload(given["master_socket"], float(given["seconds"]))
    found = door.wait(given["admin_socket"], given["digest"], float(given["seconds"]))
    if found != given["digest"]:
        raise Failure(
            "the door does not run with its new settings",
            expected=f"a worker with the settings {given['digest'][:12]}",
            found=f"one with {found[:12]}" if found else "no answer",
            where=given["admin_socket"],
            fix=f"read {given['log']}",
        )


if __name__ == "__main__":
    main()
