"""Keep the record of a run: runs/<id>/events.jsonl while it goes, report.html when it ends."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_record
type: notification
short_description: Write down what a run did
description:
  - Makes a directory for the run in C(runs/) beside ansible.cfg, or in the directory that the
    environment variable E(VLLM_ANSIBLE_RUNS_DIR) names, and sets E(VLLM_ANSIBLE_RUN_DIR) to it,
    and E(VLLM_ANSIBLE_RUN_CHANCE) to what no other run has.
  - Appends each event to C(events.jsonl) as it happens and renders C(report.html) at the end.
  - It is a notification callback because ansible-runner replaces the stdout callback.
requirements: [listed in callbacks_enabled, or found in a callback_plugins directory]
"""

import atexit
import contextlib
import multiprocessing
import os
import secrets
import shlex
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import constants, context
from ansible.plugins.callback import CallbackBase

from vllm_ansible.record import outcome, plays, report, run_directory
from vllm_ansible.record.recorder import Recorder

# Longer than an interrupted run takes to end by itself.
INTERRUPT_AGAIN_S = 3.0


class CallbackModule(CallbackBase):
    """Hand what Ansible reports to the recorder, leaving out what is not for the record.

    Only the named fields of a result are read; arguments, invocations and facts never are.
    """

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "run_record"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._recorder: Recorder | None = None
        self._began: dict[tuple[str, str], float] = {}
        self._play: Any = None
        self._process = os.getpid()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Begin the record with the first play: listings and syntax checks have none."""
        if self._recorder is None:
            try:
                self._recorder = self._start(play)
            except OSError as error:
                self.disabled = True
                self._display.warning(f"This run is not recorded: {error}")
                return
            atexit.register(self._interrupted)
            signal.signal(signal.SIGINT, self._interrupt)
        self._play = play
        self._recorder.play(plays.stage(play))

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say that a play found nobody to work on: Ansible calls that a success."""
        if self._recorder and plays.is_selected(self._play):
            self._recorder.warning("no host matched: nothing was done")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Begin the stage, when this is its first task."""
        # A play that ends before its first task is no stage of this run.
        if self._recorder and not plays.is_meta(task):
            self._recorder.task_start()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """Note when a host began a task."""
        self._began[host.get_name(), task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        """Record a task that succeeded, and its evidence."""
        self._task(result, "changed" if result.is_changed() else "ok")
        for found in outcome.evidence(result.result):
            self._record.evidence(result.host.get_name(), found)
        for warning in result.warnings:
            self._record.warning(plays.warning_text(warning), result.host.get_name())

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Record a task that was not needed."""
        self._task(result, "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Record a failure; one that a rescue or the task itself expects does not count as one."""
        expected = ignore_errors or plays.is_rescued(result.task)
        self._task(result, "failed", **({"expected": True} if expected else {}))
        # A gate that fails has measured all the same, and the report shows what.
        for found in outcome.evidence(result.result):
            self._record.evidence(result.host.get_name(), found)
        if not expected:
            for failure in outcome.failures(result.result, plays.reason(result)):
                self._record.failure(plays.host(result), plays.task_name(result), failure)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Record a host that did not answer."""
        self._task(result, "unreachable")
        if not result.task.ignore_unreachable:
            host = plays.host(result)
            found = outcome.unreachable(result.result, host, plays.address(result))
            self._record.failure(host, plays.task_name(result), found)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Close the record and render the report."""
        if self._recorder:
            hosts = {host: stats.summarize(host) for host in sorted(stats.processed)}
            ok = not any(host["failures"] or host["unreachable"] for host in hosts.values())
            self._finish(ok=ok and not self._recorder.failures, hosts=hosts)

    @property
    def _record(self) -> Recorder:
        """The recorder, which every result comes after."""
        if self._recorder is None:
            raise RuntimeError("a result arrived before any play began")
        return self._recorder

    def _start(self, play: Any) -> Recorder:
        cluster = plays.cluster_name(play)
        runs = run_directory.runs_directory(constants.CONFIG_FILE)
        directory = run_directory.create(runs, cluster)
        # Workers inherit it; they append their progress to the same file.
        os.environ["VLLM_ANSIBLE_RUN_DIR"] = str(directory)
        os.environ["VLLM_ANSIBLE_RUN_CHANCE"] = secrets.token_hex(8)
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        return Recorder(
            directory,
            {
                "cluster": cluster,
                "inventory": ", ".join(context.CLIARGS.get("inventory") or ()),
                "command": shlex.join(command),
                "directory": str(Path.cwd()),
                "check": bool(context.CLIARGS.get("check")),
                "limit": context.CLIARGS.get("subset"),
            },
        )

    def _task(self, result: Any, status: str, **more: Any) -> None:
        host = result.host.get_name()
        began = self._began.pop((host, result.task._uuid), None)
        seconds = time.monotonic() - began if began is not None else 0.0
        self._record.task(plays.task_name(result), host, status, seconds, **more)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        """End the workers and then the run, in the place of Ansible's own handler.

        That one fails ("process object is closed") when a worker has just ended, and leaves the
        others: the run then waits for them to its end. It leaves a second Ctrl-C to the system.
        """
        if self._process == os.getpid():
            for worker in multiprocessing.active_children():
                # One without a number has not begun; one that has gone needs no signal.
                with contextlib.suppress(ProcessLookupError):
                    if worker.pid:
                        os.kill(worker.pid, signum)
            # Python drops what is raised in the moment of a fork, and a worker that ends with the
            # lock of the results in its hand leaves the run waiting for it.
            main = threading.get_ident()
            again = threading.Timer(INTERRUPT_AGAIN_S, signal.pthread_kill, (main, signum))
            again.daemon = True
            again.start()
        raise KeyboardInterrupt

    def _interrupted(self) -> None:
        """Close a record that Ansible did not: Ctrl-C ends a run without any statistics."""
        if self._process == os.getpid() and self._recorder and not self._recorder.ended:
            # An impatient Ctrl-C would leave half a report.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._finish(ok=False, interrupted=True)
            signal.signal(signal.SIGINT, handler)

    def _finish(self, **end: Any) -> None:
        record = self._record
        record.end(**end)
        try:
            report.write(record.directory)
        # A report that cannot be drawn must not take a working cluster's exit status with it.
        except Exception as error:
            self._display.warning(
                f"The report could not be written ({type(error).__name__}: {error}); "
                f"try again with: python -m vllm_ansible.record {record.directory}"
            )
