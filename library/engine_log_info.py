#!/usr/bin/python
"""Look once at how far an engine has come."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_log_info
short_description: Look once at how far an engine has come
description:
  - Reads what the log gained since an offset, reports the phase it names, whether the recorded
    process lives, and whether its port answers. One cheap look; changes nothing.
  - With O(wait_seconds) it looks on while nothing happens, since a module that is started again
    costs a host more than all its looks.
author: The vllm-ansible authors
options:
  cluster:
    description: The cluster. Units of systemd carry its name.
    type: str
    required: true
  cluster_dir:
    description: The cluster's directory on this host.
    type: path
    required: true
  process:
    description: Name of the managed process.
    type: str
    required: true
  offset:
    description: Byte of the log to read from; -1 is where this start of the process began.
    type: int
    default: -1
  max_bytes:
    description: Read at most this much, from the end.
    type: int
    default: 131072
  phase:
    description: The phase at the moment O(since), as the look of that moment reported.
    type: str
    default: starting
  since:
    description:
      - From when on C(spans) are reported, in seconds of this host's clock. -1 is the start of the
        process.
    type: float
    default: -1
  health_url:
    description: Address that answers once the server listens. Empty asks nothing.
    type: str
    default: ""
  wait_seconds:
    description:
      - Look on for so long, until the port answers, the process or another server of the engine has
        ended, or the log names another phase than O(phase).
    type: float
    default: 0
  model_path:
    description:
      - Directory of weights. Where it is given, C(read_steps) says how much the processes that map
        its files have read, so that a slow load is distinguished from one that hangs.
    type: path
"""

EXAMPLES = r"""
- name: Look at the engine
  engine_log_info:
    cluster: r1
    cluster_dir: /opt/vllm-ansible/r1
    process: dsr1-serve
    health_url: http://10.0.0.5:8000/health
"""

RETURN = r"""
running:
  description: Whether the recorded process lives.
  type: bool
  returned: success
exit_status:
  description: How it ended, where that is known.
  type: int
  returned: success
why:
  description: Why it does not run, empty when it does.
  type: str
  returned: success
offset:
  description: Where to read on from.
  type: int
  returned: success
phase:
  description: Name, done and total of the newest phase in the text, empty when it names none.
  type: dict
  returned: success
at:
  description: When this look was, in seconds of this host's clock.
  type: float
  returned: success
spans:
  description: Seconds of each phase between O(since) and now, by its name.
  type: dict
  returned: success
compilers:
  description:
    - Compilers that processes of the engine have started on this host and that run now, each with
      C(pid), C(started), C(command) and C(ticks), processor time in units of the kernel's clock.
  type: list
  elements: dict
  returned: success
lines:
  description: The newest lines, states of a progress bar folded into one.
  type: list
  elements: str
  returned: success
news:
  description: How many of the new lines report progress; a repeated "still waiting" is none.
  type: int
  returned: success
figures:
  description: C(weights_gib), C(kv_tokens) and C(loading_seconds), as far as the text has them.
  type: dict
  returned: success
attention:
  description: Attention backends that the text names, C(used) and C(refused).
  type: dict
  returned: success
healthy:
  description: Whether the port answered with 200.
  type: bool
  returned: success
ended:
  description: Other servers of the engine on this host that do not run, each with the reason.
  type: dict
  returned: success
ranks:
  description:
    - By the address of a host, empty for this one, the ranks that wrote lines of the text, each
      with the phase of its last one.
  type: dict
  returned: success
stopped:
  description:
    - Processes of the engine on this host that a signal or a debugger has stopped, in words.
  type: list
  elements: str
  returned: success
read_steps:
  description: Steps of 16 MiB that were read, where O(model_path) is given and a process maps it.
  type: int
  returned: success
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.engine.completion import status_of
from ansible.module_utils.vllm_ansible.node.engine.log import (
    attention,
    figures,
    last_phase,
    news,
    ranks,
    spans,
    tail,
)
from ansible.module_utils.vllm_ansible.node.log_file import end_of
from ansible.module_utils.vllm_ansible.node.process.process import ProcessError
from ansible.module_utils.vllm_ansible.node.process.processes import looks, others_ended
from ansible.module_utils.vllm_ansible.node.watchdog.compiling import compilers
from ansible.module_utils.vllm_ansible.node.watchdog.processes import stopped
from ansible.module_utils.vllm_ansible.node.watchdog.snapshot import Snapshots
from ansible.module_utils.vllm_ansible.node.weights.loading import moved

# A log file tells nobody that it has grown: it has to be looked at.
LOOK_SECONDS = 0.5


def main() -> None:
    """Look and report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "cluster_dir": {"type": "path", "required": True},
            "process": {"type": "str", "required": True},
            "offset": {"type": "int", "default": -1},
            "max_bytes": {"type": "int", "default": 131072},
            "phase": {"type": "str", "default": "starting"},
            "since": {"type": "float", "default": -1},
            "health_url": {"type": "str", "default": ""},
            "wait_seconds": {"type": "float", "default": 0},
            "model_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    until = time.monotonic() + wanted["wait_seconds"]
    while True:
        now = time.time()
        try:
            records = looks(wanted["cluster_dir"], wanted["cluster"], module.run_command)
        except ProcessError as error:
            module.fail_json(msg=str(error), **error.details)
        seen = records.get(wanted["process"])
        if seen is None:
            break
        start = seen["log_offset"] if wanted["offset"] < 0 else wanted["offset"]
        data, first = end_of(seen["log"], start, wanted["max_bytes"])
        text = data.decode(errors="replace")
        phase = last_phase(text)
        ended = others_ended(records, wanted["process"])
        healthy = bool(wanted["health_url"]) and status_of(wanted["health_url"]) == 200
        another = phase is not None and phase.name != wanted["phase"]
        left = until - time.monotonic()
        if healthy or another or ended or not seen["running"] or left <= 0:
            break
        time.sleep(min(LOOK_SECONDS, left))
    if seen is None:
        module.exit_json(
            changed=False,
            running=False,
            exit_status=None,
            why="it was never started",
            offset=0,
            phase={},
            at=now,
            spans={},
            compilers=[],
            lines=[],
            news=0,
            figures={},
            attention={},
            healthy=False,
            ended={},
            read_steps=None,
            ranks={},
            stopped=[],
        )
    began = (seen["started_at"] or now) if wanted["since"] < 0 else wanted["since"]
    # A rank of Ray is none of the server's own processes, but one of the engine's.
    own = [name for name, one in records.items() if one["engine"] == seen["engine"]]
    marks = Snapshots(wanted["cluster_dir"])
    module.exit_json(
        changed=False,
        running=seen["running"],
        ended=ended,
        exit_status=seen["exit_status"],
        why=seen["why"],
        offset=first + len(data),
        phase=phase._asdict() if phase else {},
        at=now,
        spans=spans(text, wanted["phase"], began, now),
        compilers=[
            {name: getattr(one, name) for name in ("pid", "started", "command", "ticks")}
            for one in compilers(wanted["cluster_dir"], own)
        ],
        lines=tail(text),
        news=news(text),
        figures=figures(text),
        attention=attention(text),
        healthy=healthy,
        ranks=ranks(text),
        stopped=stopped(marks.take(time.monotonic()), own),
        read_steps=(
            moved.steps(wanted["model_path"], lambda pid: marks.mark(pid) in own)
            if wanted["model_path"]
            else None
        ),
    )


if __name__ == "__main__":
    main()
