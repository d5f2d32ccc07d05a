#!/usr/bin/python
"""Start, stop or restart one long-lived process of a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_process
short_description: Run one long-lived process of a cluster under the host's supervisor
description:
  - Starts, stops and removes a process under systemd (root) or a supervisord of the cluster's own.
  - A process that died is started again. One that runs with another specification is restarted only
    when O(allow_restart) says so, else the module fails and names what changed.
  - Stopping waits until every descendant is gone. Processes are known by record, never by name.
author: The vllm-ansible authors
options:
  cluster:
    description: The cluster that owns the process.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on the host; it holds records and logs.
    type: path
    required: true
  run_dir:
    description: A short, private directory for sockets. Needed by supervisord.
    type: path
  name:
    description: Name of the process, unique in the cluster on this host.
    type: str
    required: true
  engine:
    description: The engine the process belongs to.
    type: str
    default: ''
  argv:
    description: The command. Needed to start.
    type: list
    elements: str
  environment:
    description: Environment besides PATH, HOME, USER, LOGNAME and LANG. Never secrets.
    type: dict
    default: {}
  depends:
    description: Anything else whose change means a restart, such as a digest of a file it reads.
    type: dict
    default: {}
  limits:
    description: Resource limits. A limit that may not be raised stays, with a warning.
    type: dict
    default: {}
    suboptions:
      nofile:
        description: Open files.
        type: str
      memlock:
        description: Locked memory in bytes, or V(infinity).
        type: str
  cleanup:
    description:
      - A command that removes what the process has outside itself, such as a container that would
        outlive it. It runs before each start and after each end, whatever the end was; how it ends
        does not matter.
    type: list
    elements: str
    default: []
  restart:
    description:
      - Whether the supervisor starts the process again, a second later, when it fails or is killed.
        For processes of no engine alone; those of an engine start in an order.
    type: bool
    default: false
  user:
    description: User to run as, which needs root. The connecting user when omitted.
    type: str
  supervisor:
    description: What keeps the process running.
    type: str
    choices: [systemd, supervisord]
    required: true
  supervisord_python:
    description: A Python that has the package supervisor. Needed by supervisord.
    type: path
  unit_dir:
    description: Where systemd units are written.
    type: path
    default: /etc/systemd/system
  state:
    description: V(absent) stops the process and forgets it; its log stays.
    type: str
    choices: [started, stopped, absent]
    default: started
  allow_restart:
    description: Whether a running process may be restarted when its specification changed.
    type: bool
    default: false
  stop_timeout_seconds:
    description: How long the process may take to end by itself before it is killed.
    type: float
    default: 30
attributes:
  check_mode:
    description: Nothing is touched; the action and its reason are those of a real run.
    support: full
"""

EXAMPLES = r"""
- name: Run the Ray head
  managed_process:
    cluster: demo
    cluster_dir: /opt/vllm-ansible/demo
    name: smollm2-ray
    engine: smollm2
    argv: [/opt/vllm-ansible/demo/environments/abc/bin/ray, start, --head, --block]
    supervisor: systemd
    user: vllm
"""

RETURN = r"""
action:
  description: What was done, or would be in check mode.
  type: str
  returned: success
  sample: none, start, restart, stop or remove
reason:
  description: Why.
  type: str
  returned: success
running:
  description: Whether the process runs now.
  type: bool
  returned: success
pid:
  description: The process itself, not its launcher.
  type: int
  returned: success
instance:
  description: Identifies this start.
  type: str
  returned: success
digest:
  description: Digest of the specification.
  type: str
  returned: success
command:
  description: The command, quoted for a shell.
  type: str
  returned: success
log:
  description: The log.
  type: str
  returned: success
log_offset:
  description: Where this start begins in the log.
  type: int
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.process.manage import manage
from ansible.module_utils.vllm_ansible.node.process.process import NAME, Files, ProcessError, spec
from ansible.module_utils.vllm_ansible.node.process.supervisord import Supervisord
from ansible.module_utils.vllm_ansible.node.process.systemd import Systemd

ARGUMENTS = {
    "cluster": {"type": "str", "required": True},
    "cluster_dir": {"type": "path", "required": True},
    "run_dir": {"type": "path"},
    "name": {"type": "str", "required": True},
    "engine": {"type": "str", "default": ""},
    "argv": {"type": "list", "elements": "str"},
    "environment": {"type": "dict", "default": {}},
    "depends": {"type": "dict", "default": {}},
    "limits": {
        "type": "dict",
        "default": {},
        "options": {"nofile": {"type": "str"}, "memlock": {"type": "str"}},
    },
    "cleanup": {"type": "list", "elements": "str", "default": []},
    "restart": {"type": "bool", "default": False},
    "user": {"type": "str"},
    "supervisor": {"choices": ["systemd", "supervisord"], "required": True},
    "supervisord_python": {"type": "path"},
    "unit_dir": {"type": "path", "default": "/etc/systemd/system"},
    "state": {"choices": ["started", "stopped", "absent"], "default": "started"},
    "allow_restart": {"type": "bool", "default": False},
    "stop_timeout_seconds": {"type": "float", "default": 30},
}


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_if=[
            ("state", "started", ["argv"]),
            ("supervisor", "supervisord", ["run_dir", "supervisord_python"]),
        ],
        supports_check_mode=True,
    )
    wanted = module.params
    if not NAME.fullmatch(wanted["name"]):
        module.fail_json(
            msg=f"{wanted['name']!r} cannot name a process.",
            expected="lower-case letters, digits, dots and dashes, 63 at most",
            found=wanted["name"],
            where="managed_process, option name",
            fix="Rename the engine.",
        )
    supervisor = (
        Systemd(wanted["cluster"], wanted["unit_dir"], module.run_command)
        if wanted["supervisor"] == "systemd"
        else Supervisord(wanted["cluster_dir"], wanted["run_dir"], wanted["supervisord_python"])
    )
    labels = {key: wanted[key] for key in ("cluster", "engine", "stop_timeout_seconds")}
    try:
        result = manage(
            supervisor,
            Files(wanted["cluster_dir"], wanted["name"]),
            spec(wanted) if wanted["argv"] else None,
            labels,
            wanted["state"],
            wanted["allow_restart"],
            module.check_mode,
        )
    except ProcessError as error:
        module.fail_json(msg=str(error), **error.details)
    for warning in result.pop("warnings"):
        module.warn(f"{wanted['name']}: {warning}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
