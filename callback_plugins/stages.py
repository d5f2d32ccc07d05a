"""Show a run as its stages: what each found, how long it took, and why one failed."""

from __future__ import annotations

DOCUMENTATION = r"""
name: stages
type: stdout
short_description: One line a stage instead of one a task
description:
  - Prints each stage with its evidence and its seconds, and nothing for a task that went well.
  - A failure is shown as what was expected, what was found, the cause, the fix and the command.
  - With C(-v) and up, tasks and results are printed as the default callback prints them.
extends_documentation_fragment: [default_callback, result_format_callback]
requirements: [set as stdout_callback]
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import constants, context
from ansible.plugins.callback.default import CallbackModule as DefaultCallback

from vllm_ansible import terminal as console
from vllm_ansible.cli.output import outlive_readers
from vllm_ansible.record import outcome, plays, rented, report
from vllm_ansible.record.redact import (
    learn_environment,
    learn_files,
    learn_lines,
    redact_text,
    visible,
)

STATE = Path(__file__).resolve().parents[1] / "state"
# Not named as what comes next: the cluster is released, and many inventories have no group load.
UNNAMED = ("release", "load")
_COLOURS = {"cause": "COLOR_WARN", "fix": "COLOR_CHANGED", "command": "COLOR_HIGHLIGHT"}


class CallbackModule(DefaultCallback):
    """Collect what a stage found and print it when the stage is over."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "stages"

    def __init__(self) -> None:
        super().__init__()
        terminal = sys.stdout.isatty()
        os.environ[console.VARIABLE] = console.TERMINAL if terminal else console.PLAIN
        if not terminal:
            # Ansible flushes only at the end; a pipe would hold the lines of a long stage back.
            cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)
            outlive_readers()
        # Also what Ansible prints by itself: at -vvv a command with its whole environment.
        self._display.display = _shown_safely(self._display.display)
        self._process = os.getpid()
        self._stage: str | None = None
        self._pending: tuple[str, str] | None = None
        self._began = 0.0
        # By task, since its hosts answer in any order.
        self._evidence: dict[str, list[tuple[str, str]]] = {}
        self._would_change: dict[str, list[str]] = {}
        self._failures: dict[tuple[str, outcome.Failure], list[str]] = {}
        self._doors: list[rented.Door] = []
        self._failed = False
        self._running = False
        # Hosts that failures were about.
        self._named: list[str] = []
        # The stages of the playbook, in order.
        self._stages: list[str] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Keep which stage follows which, whatever tags leave out."""
        written = (plays.stage(play) for play in playbook.get_plays())
        self._stages = [name for name in dict.fromkeys(written) if name not in UNNAMED]
        if self._verbose:
            super().v2_playbook_on_start(playbook)

    # What a stage is: the record's rule, a stage begins with its first task.

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Note which stage comes next."""
        if not self._running:
            self._running = True
            atexit.register(self._interrupted)
            for variables in plays.sources(play):
                learn_environment(variables)
            learn_environment(plays.own_environment())
        self._play = play
        # Again for each play: the stage prepare makes some of them.
        learn_files(plays.secret_files(play, STATE))
        learn_lines(plays.files_of_lines(play))
        self._print_failures()
        stage = plays.stage(play)
        if stage == self._stage:
            self._pending = None
        else:
            self._end_stage()
            self._pending = (stage, play.get_name())
            self._began = time.monotonic()
        if self._verbose:
            super().v2_playbook_on_play_start(play)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        """Say that a play found nobody to work on: Ansible calls that a success."""
        if self._pending and plays.is_selected(self._play):
            self._show(console.stage_line(self._pending[0], "no host matched: nothing was done"))

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Stay silent: the failure says it all."""

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self._print_failures()
        if self._pending:
            # A play that ends before its first task is no stage of this run.
            if plays.is_meta(task):
                return
            self._stage, purpose = self._pending
            self._pending = None
            self._announce(purpose)
        elif console.is_terminal() and not self._verbose:
            self._announce(task.get_name().split(" : ")[-1])
        if self._verbose:
            super()._task_start(task, prefix)

    # What a task found.

    def v2_runner_on_ok(self, result: Any) -> None:
        """Keep the evidence and, in check mode, what would change."""
        host = result.host.get_name()
        for found in outcome.evidence(result.result):
            self._evidence.setdefault(result.task._uuid, []).append((host, found["summary"]))
            self._doors += rented.doors(found["values"])
        if result.is_changed() and result.task.check_mode:
            self._would_change.setdefault(plays.task_name(result), []).append(host)
        if self._verbose:
            super().v2_runner_on_ok(result)
            return
        for warning in result.warnings:
            self._show([f" warning    {plays.warning_text(warning)}"], "COLOR_WARN")
        # A debug task is meant for the reader.
        if result.task.action in constants._ACTION_DEBUG and "msg" in result.result:
            self._show(str(result.result["msg"]).splitlines())

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Say nothing, unless asked for tasks."""
        if self._verbose:
            super().v2_runner_on_skipped(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Keep a failure that nothing rescues, with the hosts that share it."""
        expected = ignore_errors or plays.is_rescued(result.task)
        if not expected:
            for failure in outcome.failures(result.result, plays.reason(result)):
                self._failures.setdefault((plays.task_name(result), failure), []).append(
                    plays.host(result)
                )
        if self._verbose:
            super().v2_runner_on_failed(result, ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Keep a host that did not answer."""
        if not result.task.ignore_unreachable:
            host = plays.host(result)
            failure = outcome.unreachable(result.result, host, plays.address(result))
            self._failures.setdefault((plays.task_name(result), failure), []).append(host)
        if self._verbose:
            super().v2_runner_on_unreachable(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """Say nothing, unless asked for tasks."""
        if self._verbose:
            super().v2_runner_item_on_ok(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """Say nothing yet: the task's own result carries its failed items."""
        if self._verbose:
            super().v2_runner_item_on_failed(result)

    def v2_runner_item_on_skipped(self, result: Any) -> None:
        """Say nothing, unless asked for tasks."""
        if self._verbose:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_retry(self, result: Any) -> None:
        """Say nothing, unless asked for tasks: a wait that tells has its own progress line."""
        if self._verbose:
            super().v2_runner_retry(result)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        """Say nothing, unless asked for tasks."""
        if self._verbose:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """End with one line a script can read too: what changed, and where the report is."""
        self._print_failures()
        self._end_stage()
        if self._verbose:
            super().v2_playbook_on_stats(stats)
        hosts = {host: stats.summarize(host) for host in _in_order(stats.processed)}
        failed = sum(host["failures"] + host["unreachable"] for host in hosts.values())
        changed = sum(host["changed"] for host in hosts.values())
        counts = [
            f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}",
            f"changed={changed}",
            f"failed={failed}",
        ]
        if changed and 1 < len(hosts) <= 8:
            per_host = ", ".join(f"{name} {host['changed']}" for name, host in hosts.items())
            counts[1] += f" ({per_host})"
        if context.CLIARGS.get("check"):
            counts.append("check mode: nothing was changed")
        self._running = False
        self._show(
            console.stage_line("failed" if failed else "done", ", ".join(counts)),
            "COLOR_ERROR" if failed else "COLOR_OK",
        )
        if failed:
            self._show(self._ways_out(), "COLOR_WARN")
        else:
            if self._doors:
                self._show(rented.tunnel(plays.of_first_host(self._play, "gpu"), self._doors))
            self._show(self._ways_out(failed=False))
        self._show_report()

    # How it is printed.

    @property
    def _verbose(self) -> bool:
        return bool(self._display.verbosity)

    def _show(self, lines: list[str], colour: str | None = None) -> None:
        clear = console.CLEAR if console.is_terminal() else ""
        for line in lines:
            self._display.display(
                clear + visible(redact_text(line)),
                color=getattr(constants, colour) if colour else None,
            )

    def _announce(self, text: str) -> None:
        """Say what is being done; on a terminal the line is written over by what follows."""
        line = console.progress_line(self._stage or "", text, None, None, "")
        if console.is_terminal():
            self._display.display(f"{console.CLEAR}{line}\r", newline=False, screen_only=True)
            sys.stdout.flush()
        else:
            self._display.display(line)

    def _end_stage(self) -> None:
        if self._stage is None:
            return
        seconds = console.duration(time.monotonic() - self._began)
        findings = self._findings()
        if not self._failed:
            first, *rest = findings or ["ok"]
            self._show(console.stage_line(self._stage, first, seconds))
            for line in [*rest, *self._so_far()]:
                self._show(console.stage_line("", line))
        elif findings:
            for line in findings:
                self._show(console.stage_line("", line))
        self._stage, self._failed = None, False
        self._evidence, self._would_change = {}, {}

    def _so_far(self) -> list[str]:
        """Return what rented machines have cost by now, where a stage is still to come."""
        following = dict(pairwise(self._stages)).get(self._stage or "")
        return rented.so_far(plays.cluster_name(self._play), following) if following else []

    def _findings(self) -> list[str]:
        """Return the evidence, once where hosts agree, and what check mode would change."""
        hosts: dict[str, list[str]] = {}
        for found in self._evidence.values():
            for host, summary in sorted(found, key=lambda one: console.by_number(one[0])):
                hosts.setdefault(summary, []).append(host)
        alone = len(hosts) == 1 or len({name for names in hosts.values() for name in names}) == 1
        lines = [
            summary if alone or len(names) > 1 else f"{names[0]}: {summary}"
            for summary, names in hosts.items()
        ]
        for task, names in self._would_change.items():
            lines.append(f"would change: {task.split(' : ')[-1]} ({_hosts(names)})")
        return lines

    def _print_failures(self) -> None:
        """Print each failure once, with all the hosts that met it."""
        for (task, failure), hosts in self._failures.items():
            stage = (self._pending or (self._stage or "",))[0] if not self._stage else self._stage
            seconds = "" if self._failed else console.duration(time.monotonic() - self._began)
            self._failed = True
            self._named += rented.named(
                stage, [*hosts, failure.where or ""], plays.hosts(self._play)
            )
            self._show(
                console.stage_line(stage, f"{_hosts(hosts)}: {failure.msg}", seconds), "COLOR_ERROR"
            )
            for name in outcome.FIELDS:
                if text := getattr(failure, name):
                    self._show(list(console.labelled(name, text, 3)), _COLOURS.get(name))
            self._show(list(console.labelled("task", task, 3)))
        self._failures = {}

    def _ways_out(self, *, failed: bool = True) -> list[str]:
        given = context.CLIARGS.get("inventory") or ()
        cluster = plays.cluster_name(self._play)
        return rented.ways_out(cluster, given, failed=failed, named=self._named)

    def _show_report(self) -> None:
        directory = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
        if directory:
            self._show([f" report     {os.path.relpath(Path(directory) / report.FILE)}"])

    def _interrupted(self) -> None:
        """Say where an interrupted run stood: Ansible itself only says that it was."""
        if self._process != os.getpid() or not self._running:
            return
        self._print_failures()
        stage = self._stage or "before any stage"
        self._show([f" stopped    in stage {stage}; the same command takes up where it was"])
        self._show(self._ways_out(), "COLOR_WARN")
        self._show_report()


def _shown_safely(display: Callable[..., None]) -> Callable[..., None]:
    """Return a way to print in which no secret is shown and no terminal obeys what a host said."""

    def shown(msg: Any, *arguments: Any, **options: Any) -> None:
        display(visible(redact_text(str(msg)), own=True), *arguments, **options)

    return shown


def _hosts(names: list[str]) -> str:
    """Return some hosts as a person would list them: by name and number, not by who was first."""
    names = _in_order(names)
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=console.by_number)
