"""Wait until Ray counts every planned device at its planned address, and name who is missing."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ray_nodes
short_description: Wait until every planned host has joined an engine's Ray cluster
description:
  - Runs on the head of the engine. Shows how many have joined while it waits.
  - Does not fail but reports C(ready), so that the logs of all hosts can be read first.
options:
  engine: {description: Name of the engine., type: str, required: true}
  dashboard_port:
    description: Port of the dashboard on the head's loopback.
    type: int
    required: true
  token_file: {description: File on the head with the Ray token., type: path, required: true}
  cluster: {description: The cluster., type: str, required: true}
  cluster_dir: {description: The cluster's directory on the head., type: path, required: true}
  expected:
    description: Planned C(address) and number of C(devices) by host name.
    type: dict
    required: true
  formed:
    description:
      - The cluster was measured when it was formed and none of its processes has ended since.
        Nobody is asked then.
    type: bool
    default: false
  silence_seconds:
    description: Give up when nothing joins for this long.
    type: float
    default: 60
"""

EXAMPLES = r"""
- name: Wait until every host has joined
  ray_nodes:
    engine: chat
    dashboard_port: 20001
    token_file: /opt/vllm-ansible/r1/secrets/ray_token
    cluster: r1
    cluster_dir: /opt/vllm-ansible/r1
    expected:
      gh-01: {address: 10.0.0.1, devices: 1}
"""

import sys
import time
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.node.engine.ray import missing
from vllm_ansible.node.process.process import told
from vllm_ansible.record.host_progress import Silence
from vllm_ansible.record.progress import Progress

# One module looks on for so long while no node joins: starting it costs the host more.
WAIT_SECONDS = 3.0


class ActionModule(ActionBase):
    """Ask the head again and again; judge with `node.engine.ray.missing`."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `ready`, and what was expected and found when it is not."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "engine": {"type": "str", "required": True},
                "dashboard_port": {"type": "int", "required": True},
                "token_file": {"type": "path", "required": True, "no_log": False},
                "cluster": {"type": "str", "required": True},
                "cluster_dir": {"type": "path", "required": True},
                "expected": {"type": "dict", "required": True},
                "formed": {"type": "bool", "default": False},
                "silence_seconds": {"type": "float", "default": 60},
            }
        )
        expected = wanted["expected"]
        if wanted["formed"]:
            return {**result, "changed": False, **_formed(wanted["engine"], expected)}
        look = {key: wanted[key] for key in ("dashboard_port", "token_file")}
        progress = Progress(Display(), "cluster", f"Ray of {wanted['engine']}")
        silence = Silence(wanted["silence_seconds"], time.monotonic())
        waits: dict[str, Any] = {}  # what has formed already costs one look
        while True:
            answer = self._execute_module(
                module_name="ray_nodes_info", module_args={**look, **waits}, task_vars=task_vars
            )
            if answer.get("failed"):
                return dict(answer)
            waits = {
                "wait_seconds": min(WAIT_SECONDS, wanted["silence_seconds"]),
                "known_nodes": len(answer["nodes"]),
            }
            absent = missing(expected, answer["nodes"])
            if not absent and not answer["error"]:
                return {**result, "changed": False, **_ready(wanted["engine"], expected)}
            if self._task.check_mode:
                return {**result, "changed": False, "ready": True, "waited": False}
            joined = len(expected) - len(absent)
            silence.observe((joined, answer["error"]), time.monotonic())
            progress.show(
                f"{wanted['engine']}: hosts joined to Ray", joined, len(expected), "hosts"
            )
            ended = self._ended(wanted, task_vars) if answer["error"] else ""
            if ended:
                return {**result, "changed": False, **_not_ready(wanted, absent, ended)}
            if silence.broken(time.monotonic()):
                return {**result, "changed": False, **_not_ready(wanted, absent, answer["error"])}

    def _ended(self, wanted: dict[str, Any], task_vars: Any) -> str:
        """Return how the head's process ended, empty while it runs: the dead are not awaited."""
        look = self._execute_module(
            module_name="processes_info",
            module_args={key: wanted[key] for key in ("cluster", "cluster_dir")},
            task_vars=task_vars,
        )
        name = f"{wanted['engine']}-ray"
        record = look.get("processes", {}).get(name)
        if record is None or record["running"]:
            return ""
        return told(name, record["why"])


def _ready(engine: str, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on a cluster in which every planned device was counted."""
    devices = sum(int(host["devices"]) for host in expected.values())
    addresses = ", ".join(str(host["address"]) for host in expected.values())
    return _verdict(engine, expected, f"Ray counts all {devices} devices, at {addresses}")


def _formed(engine: str, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on a cluster that was counted before and has not changed since."""
    return _verdict(engine, expected, f"Ray as it was formed, on {', '.join(expected)}")


def _verdict(engine: str, expected: dict[str, Any], summary: str) -> dict[str, Any]:
    return {
        "ready": True,
        "evidence": {
            "gate": "cluster",
            "summary": f"{engine}: {summary}",
            "values": {"engine": engine, "hosts": expected},
        },
    }


def _not_ready(wanted: dict[str, Any], absent: list[dict[str, str]], error: str) -> dict[str, Any]:
    """Return what was found in place of the planned cluster."""
    names = ", ".join(one["host"] for one in absent)
    whys = "; ".join(f"{one['host']}: {one['why']}" for one in absent)
    return {
        "ready": False,
        "missing": absent,
        "expected": f"{len(wanted['expected'])} hosts in the Ray cluster of {wanted['engine']}",
        "found": f"the head does not answer: {error}" if error else f"missing {names}. {whys}",
        "where": names or wanted["engine"],
        "fix": f"read {wanted['engine']}-ray.log on {names or 'the head'}: it says why Ray did not "
        "start or could not reach the head; then run the same command again",
    }
