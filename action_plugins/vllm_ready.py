"""Follow a starting engine until it has answered a real question, or say why it has not."""

from __future__ import annotations

DOCUMENTATION = r"""
name: vllm_ready
short_description: Follow a starting engine until it has answered a real question
description:
  - Runs on the host that serves the engine's API. Shows the phase the engine is in, with counts
    where the engine counts, and ends with a completion.
  - Does not fail but reports C(ready), so that the logs of all ranks can be read first.
options:
  engine: {description: "Its name in words for people, with its rank.", type: str, required: true}
  process: {description: Name of its serving process., type: str, required: true}
  look:
    description: C(cluster) and C(cluster_dir), as M(engine_log_info) takes them.
    type: dict
    required: true
  url: {description: Base address of the server., type: str, required: true}
  completion:
    description: Options of M(completion_check) but the address.
    type: dict
    required: true
  serving:
    description: Its server runs already. It is asked at once, and followed only when that fails.
    type: bool
    default: false
  silence_seconds:
    description:
      - Give up when the log says nothing new for this long. While compilers that the engine has
        started on this host take processor time, silence is not counted.
    type: float
    default: 180
  compile_seconds:
    description:
      - Give up all the same when compilers work for this long without a new line in the log.
    type: float
    default: 1800
  model_path:
    description:
      - Directory of its weights on this host. What processes that map them read counts as news
        while they load, however long the log says nothing.
    type: str
  hosts:
    description:
      - Names of the engine's hosts by their addresses, the server's own first. The wait names the
        ranks that have not come as far as others, and processes of this host that are stopped.
    type: dict
    default: {}
  elsewhere_seconds:
    description:
      - How long hosts that are not looked at are expected to load. So much longer the log may say
        nothing between the beginning of loading and its end on all ranks.
    type: float
    default: 0
"""

EXAMPLES = r"""
- name: Follow the engine until it answers
  vllm_ready:
    engine: chat
    process: chat-serve
    look: {cluster: r1, cluster_dir: /opt/vllm-ansible/r1}
    url: http://10.0.0.1:8000
    completion: {model: chat, api_key_file: /opt/vllm-ansible/r1/secrets/api_key, expect: Paris}
"""

import sys
import time
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.node.process.process import told
from vllm_ansible.plan.estimate.layouts.printed import joined
from vllm_ansible.record.engine_start import FIRST_ANSWER, Start
from vllm_ansible.record.host_progress import Growth
from vllm_ansible.record.progress import Progress

# One module looks on for so long while nothing happens: starting it takes more of a host, which
# loads a model meanwhile, than what it does.
WAIT_SECONDS = 5.0
# From here on it is looked at what a silent load reads.
CLOSER_SECONDS = 10
# The first rank that has loaded says so, and profiling begins when all have.
MAY_LOAD = ("loading", "loading shards", "profiling")


class ActionModule(ActionBase):
    """Look at log, process and port in one module a round, which waits for news."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `ready` with the answer, or with what was found in its place."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "engine": {"type": "str", "required": True},
                "process": {"type": "str", "required": True},
                "look": {"type": "dict", "required": True},
                "url": {"type": "str", "required": True},
                "completion": {"type": "dict", "required": True},
                "serving": {"type": "bool", "default": False},
                "silence_seconds": {"type": "float", "default": 180},
                "compile_seconds": {"type": "float", "default": 1800},
                "model_path": {"type": "str"},
                "hosts": {"type": "dict", "default": {}},
                "elsewhere_seconds": {"type": "float", "default": 0},
            }
        )
        verdict = self._serving(wanted, task_vars) or self._follow(wanted, task_vars)
        return {**result, "changed": False, **verdict}

    def _serving(self, wanted: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Return the answer of an engine that needs no following, nothing when it has none."""
        if not wanted["serving"] or self._task.check_mode:
            return {}
        verdict = self._answer(wanted, task_vars)
        return verdict if verdict.get("ready") else {}

    def _follow(self, wanted: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        progress = Progress(Display(), "serve", f"start of {wanted['engine']}")
        limits = wanted["silence_seconds"], wanted["compile_seconds"]
        start = Start(*limits, time.monotonic(), wanted["hosts"])
        offset, since, last_line = -1, -1.0, ""
        read = Growth()
        figures: dict[str, float] = {}
        attention: dict[str, list[str]] = {}
        wait_seconds = 0.0  # what answers already costs one look
        while True:
            look = self._execute_module(
                module_name="engine_log_info",
                module_args={
                    **wanted["look"],
                    "process": wanted["process"],
                    "offset": offset,
                    "phase": start.phase["name"],
                    "since": since,
                    **_closer(wanted, start.phase["name"], start.quiet, read.known),
                    "health_url": f"{wanted['url']}/health",
                    "wait_seconds": wait_seconds,
                },
                task_vars=task_vars,
            )
            wait_seconds = min(WAIT_SECONDS, wanted["silence_seconds"])
            if look.get("failed"):
                return dict(look)
            offset, since = look["offset"], look["at"]
            steps = read.add(look.get("read_steps"))
            may_load = (look["phase"] or start.phase)["name"] in MAY_LOAD
            waits = wanted["elsewhere_seconds"] if may_load else 0.0
            start.observe(look, time.monotonic(), steps, waits)
            last_line = (look["lines"] or [last_line])[-1]
            figures = joined(figures, look.get("figures") or {})
            for kind, names in (look.get("attention") or {}).items():
                attention[kind] = list(dict.fromkeys([*attention.get(kind, []), *names]))
            if look["running"] and look["healthy"]:
                progress.show(f"{wanted['engine']}: first answer", phase="answering")
                printed = {"figures": figures, "attention": attention}
                answer = self._answer(wanted, task_vars)
                return {**answer, **printed, "start": _seconds(start, answer)}
            if self._task.check_mode:
                return {"ready": True, "waited": False}
            if not look["running"]:
                ended = told(wanted["process"], look["why"])
                return _not_ready(wanted, f"{ended} while {start.phase['name']}", last_line)
            for other, why in (look.get("ended") or {}).items():
                found = f"{told(other, why)} while {wanted['process']} was {start.phase['name']}"
                return _not_ready(wanted, found, last_line)
            if found := start.given_up(time.monotonic()):
                return {**_not_ready(wanted, found, last_line), "silent": True}
            _show(progress, wanted["engine"], start)

    def _answer(self, wanted: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Ask the question that proves the model works."""
        asked, patience = time.monotonic(), float(wanted["completion"].get("timeout_seconds", 300))
        reply = self._execute_module(
            module_name="completion_check",
            module_args={**wanted["completion"], "url": wanted["url"]},
            task_vars=task_vars,
        )
        if reply.get("failed"):
            return dict(reply)
        if not reply["ok"]:
            found = _not_ready(wanted, reply["reason"], "")
            if reply.get("wrong"):
                return {**found, "wrong": True}
            # It is healthy and computes nothing, as one does that hangs in its first step.
            return {**found, "silent": True} if time.monotonic() - asked >= patience else found
        return {
            "ready": True,
            "endpoint": f"{wanted['url']}/v1",
            "question": wanted["completion"].get("question", ""),
            "answer": reply["answer"],
            "reasoning": reply.get("reasoning", ""),
            "seconds": reply["seconds"],
        }


def _closer(wanted: dict[str, Any], phase: str, quiet: float, known: bool) -> dict[str, Any]:
    """Return what else to look at: what a load has read, at first and when it says nothing.

    Not in each round: every process of the host is looked at for it.
    """
    if not wanted["model_path"] or phase not in MAY_LOAD:
        return {}
    soon = min(CLOSER_SECONDS, wanted["silence_seconds"] / 4)
    return {"model_path": wanted["model_path"]} if quiet >= soon or not known else {}


def _show(progress: Progress, engine: str, start: Start) -> None:
    """Put the phase on the cluster's one line, and how long it has been quiet or compiles."""
    text, name = f"{engine}: {start.words()}", start.phase["name"]
    if start.phase["total"]:
        progress.show(text, start.phase["done"], start.phase["total"], phase=name)
    else:
        # Seconds and numbers of compilers are no news on a console where lines are only added.
        progress.show(text, phase=name if start.compilers else text)


def _seconds(start: Start, answer: dict[str, Any]) -> dict[str, float]:
    """Return what the start has taken its time for, nothing of an engine that did not answer."""
    if not answer.get("ready"):
        return {}
    return {**start.seconds(), FIRST_ANSWER: round(answer["seconds"], 1)}


def _not_ready(wanted: dict[str, Any], found: str, last_line: str) -> dict[str, Any]:
    """Return what was found in place of a correct answer."""
    return {
        "ready": False,
        "expected": f"a correct completion from {wanted['engine']} at {wanted['url']}",
        "found": found + (f"; last line: {last_line}" if last_line else ""),
        "where": f"{wanted['process']}.log",
        "fix": "read the collected logs in runs/latest/logs, mend what they name, then run again",
    }
