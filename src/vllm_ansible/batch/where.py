"""Which server a verb means by its options, and how it is refused."""

from __future__ import annotations

import argparse
import json
import ssl
import sys

from vllm_ansible import terminal as console
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.record.run_directory import runs_directory

from .client import Target
from .target import Known, api, read_key, recorded


def add_arguments(made: argparse.ArgumentParser) -> None:
    """Add the options that say which server is meant, and what each request carries."""
    made.add_argument("-i", "--inventory", help="the inventory that serves the model")
    made.add_argument("--engine", metavar="NAME", help="which of its engines, if there are several")
    made.add_argument(
        "--checkout", help="where the playbooks are, if not found from this directory"
    )
    made.add_argument("--url", help="the server, if no inventory names it")
    made.add_argument("--model", help="the name it serves the model by")
    made.add_argument("--key-file", metavar="FILE", help="holds the server's key")
    made.add_argument("--ca", metavar="FILE", help="certificates the server's is signed by")
    made.add_argument("--system", metavar="TEXT", help="system prompt of prompts without their own")
    made.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of each request, such as max_tokens=512 or temperature=0",
    )


def known_of(options: argparse.Namespace) -> Known:
    """Return what the record says of the engine, if an inventory was named; raise PlanError."""
    if not options.inventory:
        if not (options.url and options.model):
            raise PlanError(
                Problem(
                    "no server was named",
                    expected="an inventory that was served (-i), or --url and --model",
                    found="neither",
                )
            )
        return Known()
    # Brings ansible-runner along, which takes longer to import than all else here.
    from vllm_ansible.runner.outcome import RefusedInput
    from vllm_ansible.runner.request import find_checkout, find_inventory

    try:
        checkout = find_checkout(options.checkout)
        inventory = find_inventory(options.inventory, checkout)
    except RefusedInput as error:
        raise PlanError(Problem(str(error))) from error
    return recorded(runs_directory(str(checkout / "ansible.cfg")), inventory, options.engine)


def target_of(options: argparse.Namespace, known: Known) -> Target:
    """Return where requests go; raise PlanError for files or addresses that do not do."""
    if options.ca:
        try:
            ssl.create_default_context(cafile=options.ca)
        except OSError as error:
            raise PlanError(
                Problem(
                    "--ca does not name certificates",
                    expected="a file of certificates, in PEM",
                    found=error.strerror or str(error),
                    where=options.ca,
                )
            ) from error
    return Target(
        url=api(options.url or known.url),
        model=options.model or known.model,
        key=read_key(options.key_file or known.key_file),
        ca=options.ca,
    )


def refuse(error: PlanError, as_json: bool = False) -> None:
    """Print what was expected, what was found, where, and what to do."""
    if as_json:
        sys.stdout.write(json.dumps({"ok": False, "refused": str(error)}, indent=2) + "\n")
        return
    for problem in error.problems:
        sys.stderr.write(f"vllm-ansible: {problem.message}\n")
        for label in ("expected", "found", "where", "fix"):
            if text := getattr(problem, label):
                sys.stderr.write("\n".join(console.labelled(label, text, 3)) + "\n")


def seconds(text: str) -> float:
    """Return a bound of time; none at all is not offered."""
    value = float(text)
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("more than 0")
    return value
