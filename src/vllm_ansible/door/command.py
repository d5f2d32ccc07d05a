"""The command `vllm-ansible key`: make a key for a client of the door, list clients, revoke one."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .client_file import FileFault, held, read, write
from .clients import FIRST, LAST, LIMITS, MOST, NAME, Client

OK, REFUSED = 0, 2
FILE = "clients.yml"
APPLY = (
    "apply it: ansible-playbook -i INVENTORY playbooks/route.yml, with door_clients_file: {path}"
)


class _Refusal(Exception):
    """What was asked for cannot be done."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked; 0 is done, 2 is refused with nothing changed."""
    options = parser().parse_args(arguments)
    try:
        options.act(options)
    except (FileFault, _Refusal) as refusal:
        sys.stderr.write(f"vllm-ansible: {refusal}\n")
        return REFUSED
    return OK


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(prog="vllm-ansible key", description=__doc__)
    verbs = made.add_subparsers(dest="verb", required=True, metavar="add|list|revoke")
    add = _verb(verbs, "add", "make a key for a new client and print it, once", _add)
    add.add_argument("name", metavar="NAME", help="of the client, in the access log as well")
    for limit, purpose in (
        (LIMITS[0], "requests in any 60 seconds"),
        (LIMITS[1], "requests at the same time"),
        (LIMITS[2], "tokens a day of UTC, of prompts and answers together"),
        (LIMITS[3], "tokens a month of UTC, likewise"),
    ):
        add.add_argument(f"--{limit.replace('_', '-')}", type=_count, metavar="N", help=purpose)
    add.add_argument(
        "--priority",
        type=_priority,
        default=0,
        metavar="N",
        help="lower is served earlier, by engines with scheduling_policy: priority (0)",
    )
    add.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="MODEL",
        help="may use this model by its served name; again for further ones (all)",
    )
    _verb(verbs, "list", "show names and limits of all clients", _list)
    revoke = _verb(verbs, "revoke", "remove a client with its key", _revoke)
    revoke.add_argument("name", metavar="NAME")
    return made


def _verb(verbs: Any, name: str, purpose: str, act: object) -> argparse.ArgumentParser:
    one: argparse.ArgumentParser = verbs.add_parser(name, help=purpose, description=purpose)
    one.add_argument("--file", type=Path, default=Path(FILE), help=f"file of clients ({FILE})")
    one.set_defaults(act=act)
    return one


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 1 <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {MOST}")
    return value


def _priority(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = LAST + 1
    if not FIRST <= value <= LAST:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {FIRST} to {LAST}")
    return value


def _add(options: argparse.Namespace) -> None:
    if not NAME.fullmatch(options.name):
        raise _Refusal(f"{options.name!r} is no name: letters, digits, dots, dashes, 63 at most")
    key = f"sk-{secrets.token_urlsafe(32)}"
    client = Client(
        key_sha256=hashlib.sha256(key.encode()).hexdigest(),
        **{limit: getattr(options, limit) for limit in LIMITS},
        models=tuple(options.model),
        created=datetime.now(UTC).strftime("%Y-%m-%d"),
        priority=options.priority,
    )
    with held(options.file):
        clients = _known(options.file, new=True)
        if options.name in clients:
            raise _Refusal(
                f"{options.file} has a client {options.name} already; revoke it first, or take "
                "another name, so that both keys open the door until the old one is revoked"
            )
        clients[options.name] = client
        write(options.file, clients)
    sys.stderr.write(f"the key of {options.name}, shown once and kept nowhere:\n")
    sys.stdout.write(f"{key}\n")
    sys.stdout.flush()
    sys.stderr.write(APPLY.format(path=options.file.absolute()) + "\n")


def _list(options: argparse.Namespace) -> None:
    clients = _known(options.file)
    rows: list[tuple[str, ...]] = [("client", *LIMITS, "priority", "models", "created")]
    for name, client in clients.items():
        limits = [getattr(client, limit) for limit in LIMITS]
        words = ["-" if one is None else str(one) for one in limits]
        models = ", ".join(client.models) or "all"
        rows.append((name, *words, str(client.priority), models, client.created or "-"))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{line.rstrip()}\n")


def _revoke(options: argparse.Namespace) -> None:
    with held(options.file):
        clients = _known(options.file)
        if options.name not in clients:
            known = ", ".join(clients) or "none"
            raise _Refusal(f"{options.file} has no client {options.name}; it has: {known}")
        del clients[options.name]
        write(options.file, clients)
    sys.stdout.write(f"{options.name} is revoked in {options.file}\n")
    sys.stderr.write(APPLY.format(path=options.file.absolute()) + "\n")


def _known(path: Path, new: bool = False) -> dict[str, Client]:
    try:
        return read(path)
    except FileNotFoundError as error:
        if new:
            return {}
        raise _Refusal(f"{path} does not exist; vllm-ansible key add makes it") from error
