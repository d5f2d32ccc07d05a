"""The command `vllm-ansible`: plan a cluster, bring it up, look at it, read its logs, end it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from ..plan.estimate.layouts.command import main as plan
from ..runner import Outcome, RefusedInput, RunFailure, run
from ..runner.request import Request, check_request
from ..runner.stop import Stop, stop
from .live_view import LiveView

OK, FAILED, REFUSED = 0, 1, 2
_PLAYBOOKS = {
    "up": "site.yml",
    "status": "playbooks/status.yml",
    "logs": "playbooks/logs.yml",
    "upgrade": "playbooks/upgrade.yml",
    "down": "playbooks/teardown.yml",
    "sbatch": "playbooks/sbatch.yml",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; 0 is done, 1 is failed, 2 is refused before anything ran."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["plan"]:
        return plan(words[1:])
    if words[:1] == ["diagnose"]:
        from .diagnose import main as diagnose

        return diagnose(words[1:], look)
    if words[:1] == ["send"]:
        # What it sends with is nothing to the other verbs.
        from ..batch.command import main as send

        return send(words[1:])
    if words[:1] == ["bundle"]:
        from ..bundle.command import main as bundle

        return bundle(words[1:])
    if words[:1] == ["key"]:
        from ..door.command import main as key

        return key(words[1:])
    if words[:1] == ["usage"]:
        from ..door.usage import main as usage

        return usage(words[1:])
    if words[:1] == ["compare"]:
        from ..benchmark.compare_command import main as compare

        return compare(words[1:])
    if words[:1] == ["prices"]:
        from ..provision.prices_command import main as prices

        return prices(words[1:])
    if words[:1] == ["ask"]:
        from ..batch.asking import main as ask

        return ask(words[1:])
    options = _parser().parse_args(words)
    try:
        request = check_request(
            options.inventory or "",
            _PLAYBOOKS[options.verb],
            tags=getattr(options, "tags", ""),
            until=getattr(options, "until", ""),
            limit=options.limit,
            extra_vars={**_script(options), **_variables(options.variables)},
            check=getattr(options, "check", False),
            checkout=options.checkout,
        )
    except RefusedInput as refusal:
        if getattr(options, "json", False):
            _print_document({"ok": False, "refused": str(refusal)})
        else:
            sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return REFUSED
    if options.verb == "logs":
        _become_ansible(request, options.variables)
    with _stopped_by_signals() as cancel:
        if options.verb == "status":
            return _watch(request, options, cancel)
        return _show_once(request, options, cancel)


def look(playbook: str, options: argparse.Namespace) -> tuple[Path | None, bool]:
    """Run a playbook that looks, and return the directory of its run and whether it failed.

    Without a directory nothing ran: why is written to stderr.
    """
    try:
        request = check_request(
            options.inventory or "",
            playbook,
            limit=options.limit,
            extra_vars=_variables(options.variables),
            checkout=options.checkout,
        )
    except RefusedInput as refusal:
        sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return None, True
    with _stopped_by_signals() as cancel:
        result = _result(request, cancel)
    if isinstance(result, RunFailure) and not (result.run_dir and _is_answered(result.run_dir)):
        view = LiveView(sys.stderr)
        view.failure(result)
        view.close()
        return None, True
    return result.run_dir, isinstance(result, RunFailure)


def _is_answered(directory: Path) -> bool:
    from .diagnose import ANSWER

    return (directory / ANSWER).is_file()


def _show_once(request: Request, options: argparse.Namespace, cancel: Stop) -> int:
    """Run, with a live view or one document at the end."""
    if options.json:
        result = _result(request, cancel)
        _print_document(_as_document(result))
        return _exit_status(result)
    view = LiveView(sys.stdout)
    result = _result(request, cancel, view)
    view.close()
    if isinstance(result, Outcome):
        view.outcome(result)
    else:
        view.failure(result)
    return _exit_status(result)


def _watch(request: Request, options: argparse.Namespace, cancel: Stop) -> int:
    """Show the state of the cluster, again and again while somebody is looking."""
    looking = sys.stdout.isatty() and not options.once and not options.json
    result = _result(request, cancel)
    while True:
        if options.json:
            _print_document(_as_document(result))
        else:
            if looking:
                # Home, and clear what lies below: no flicker, and the scrollback stays.
                sys.stdout.write("\x1b[H\x1b[J")
            LiveView(sys.stdout).state(result)
        if not looking or cancel.wait(options.interval):
            return _exit_status(result)
        latest = _result(request, cancel)
        # A watch of a day would leave thousands of records that say the same.
        if result.run_dir and result.run_dir != latest.run_dir:
            shutil.rmtree(result.run_dir, ignore_errors=True)
        if cancel.is_set():
            return _exit_status(result)
        result = latest


def _result(request: Request, cancel: Stop, view: LiveView | None = None) -> Outcome | RunFailure:
    try:
        return run(
            request.inventory,
            request.playbook,
            tags=request.tags,
            limit=request.limit,
            extra_vars=request.extra_vars,
            check=request.check,
            on_event=view.show if view else None,
            cancel=cancel,
            checkout=request.checkout,
        )
    except RunFailure as failure:
        return failure


def _exit_status(result: Outcome | RunFailure) -> int:
    if isinstance(result, Outcome):
        return OK
    # They touch no machine: what they refuse is the inventory, or what was asked for.
    return REFUSED if result.stage in ("validate", "sbatch") else FAILED


def _as_document(result: Outcome | RunFailure) -> dict[str, Any]:
    """Return what a script reads."""
    if isinstance(result, Outcome):
        return asdict(result)
    return {"ok": False, **result.as_dict()}


def _print_document(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=2, default=str) + "\n")


def _become_ansible(request: Request, variables: Sequence[str]) -> None:
    """Replace this process by ansible-playbook: a log needs no view but its own lines."""
    beside_us = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(request.checkout / "ansible.cfg"),
        "PATH": os.pathsep.join([beside_us, os.environ.get("PATH", os.defpath)]),
    }
    command = ["ansible-playbook", request.playbook, "-i", str(request.inventory)]
    if request.limit:
        command += ["--limit", request.limit]
    for variable in variables:
        # A file was named from where we stand, not from the checkout.
        file = f"@{Path(variable[1:]).resolve()}" if variable.startswith("@") else variable
        command += ["-e", file]
    os.chdir(request.checkout)
    os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted


def _script(options: argparse.Namespace) -> dict[str, Any]:
    """Return the variables of `sbatch`: its file is named from where we stand."""
    if options.verb != "sbatch":
        return {}
    file = str(Path(options.output or ".").absolute())
    return {"slurm_script": file, **({"slurm_script_replace": True} if options.force else {})}


def _variables(given: Sequence[str]) -> dict[str, Any]:
    """Return the variables of all -e options, in the three forms that Ansible knows."""
    variables: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if text.startswith(("@", "{")):
            variables |= _mapping(text)
        elif equals and name.isidentifier():
            variables[name] = value
        else:
            raise RefusedInput(f"-e {text!r} is neither name=value, nor JSON, nor @file")
    return variables


def _mapping(text: str) -> dict[str, Any]:
    try:
        source = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        loaded = yaml.safe_load(source)
    except OSError as error:
        raise RefusedInput(f"-e {text}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # No month has such a day.
        why = " ".join(str(error).split())
        raise RefusedInput(f"-e {text}: not YAML that can be read here: {why}") from error
    if not isinstance(loaded, dict):
        raise RefusedInput(f"-e {text}: a mapping of names to values was expected")
    return loaded


@contextmanager
def _stopped_by_signals() -> Iterator[Stop]:
    """Give what Ctrl-C and a polite kill set, so that a run ends in order."""
    with stop() as cancel:
        before = {
            number: signal.signal(number, lambda *_: cancel.set())
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield cancel
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm-ansible", description=__doc__)
    verbs = parser.add_subparsers(
        dest="verb",
        required=True,
        metavar="COMMAND",
    )
    verbs.add_parser("plan", help="say how to run a model on machines, see plan --help")
    verbs.add_parser("prices", help="write what a provider asks for its machines; see its --help")
    verbs.add_parser(
        "diagnose", help="name what is wrong, and why, of a cluster or of logs; see its --help"
    )
    verbs.add_parser("ask", help="ask a served model one question, see ask --help")
    verbs.add_parser("send", help="send many tagged prompts to a served model, see send --help")
    verbs.add_parser("key", help="make, list and revoke keys of the door, see key --help")
    verbs.add_parser("usage", help="what clients of the door used, as CSV, see usage --help")
    verbs.add_parser("compare", help="compare two kept ramps of concurrency, see compare --help")
    verbs.add_parser("bundle", help="write one file for hosts without a way out, see bundle --help")
    for verb, purpose in (
        ("up", "bring the cluster of an inventory to a served model"),
        ("upgrade", "change engines behind the door, one after the other"),
        ("status", "show what runs where"),
        ("logs", "print the log of every rank; -e logs_follow=true follows them"),
        ("down", "stop the cluster and remove what was made for it"),
        ("sbatch", "write one script for sbatch that serves without this project"),
    ):
        one = verbs.add_parser(verb, help=purpose, description=purpose)
        one.add_argument("-i", "--inventory", help="path or name of an inventory")
        one.add_argument("--limit", help="only these hosts")
        one.add_argument(
            "-e",
            "--extra-vars",
            dest="variables",
            action="append",
            default=[],
            metavar="VARS",
            help="name=value, JSON or @file",
        )
        one.add_argument(
            "--checkout", help="where the playbooks are, if not found from this directory"
        )
        if verb != "logs":
            one.add_argument("--json", action="store_true", help="print one JSON document")
        if verb == "status":
            one.add_argument("--once", action="store_true", help="look once, also on a terminal")
            one.add_argument("--interval", type=float, default=5.0, metavar="SECONDS")
        if verb in ("up", "upgrade", "down", "sbatch"):
            one.add_argument("--check", action="store_true", help="say what would change")
        if verb == "sbatch":
            one.add_argument("--output", metavar="FILE", help="or a directory (here)")
            one.add_argument("--force", action="store_true", help="replace a file that differs")
        if verb == "up":
            one.add_argument("--tags", default="", help="only these stages")
            one.add_argument(
                "--until", default="", metavar="STAGE", help="stop after this stage of site.yml"
            )
    return parser


if __name__ == "__main__":
    sys.exit(main())
