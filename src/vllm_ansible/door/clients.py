"""The file of clients: names, SHA-256 of keys, limits; and the lines that HAProxy reads of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import yaml

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
LIMITS = ("requests_per_minute", "at_once", "tokens_per_day", "tokens_per_month")
# HAProxy and Lua count far beyond it; more is a typing error.
MOST = 10**12
# Of vLLM: lower is served earlier.
FIRST, LAST = -1000, 1000


class ClientsFault(Exception):
    """What keeps a text from being a file of clients; quotes no key and no digest."""


@dataclass(frozen=True)
class Client:
    """A client of the door: the digest of its key, and its limits, none where there is no limit.

    requests_per_minute counts over the last 60 s, tokens_per_day over a day of UTC,
    tokens_per_month over a month of it. Without models it may use all of them. Where engines
    serve by priority, lower ones come first, and 0 is that of clients without one.
    """

    key_sha256: str
    requests_per_minute: int | None = None
    at_once: int | None = None
    tokens_per_day: int | None = None
    models: tuple[str, ...] = ()
    created: str = ""
    tokens_per_month: int | None = None
    priority: int = 0


def parse(text: str) -> dict[str, Client]:
    """Return the clients by name; raise ClientsFault for anything else."""
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # No month has such a day.
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        raise ClientsFault(f"is not valid YAML{line}") from error
    if not isinstance(loaded, dict) or set(loaded) != {"clients"}:
        raise ClientsFault("does not hold the one mapping `clients`")
    entries = loaded["clients"] or {}
    if not isinstance(entries, dict):
        raise ClientsFault("holds no mapping of names below `clients`")
    found = {name: _client(name, entry) for name, entry in entries.items()}
    owners: dict[str, str] = {}
    for name, client in found.items():
        other = owners.setdefault(client.key_sha256, name)
        if other != name:
            raise ClientsFault(f"gives {other} and {name} the same key")
    return found


def _client(name: Any, entry: Any) -> Client:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ClientsFault(f"holds the name {name!r}: letters, digits, dots, dashes, 63 at most")
    if not isinstance(entry, dict):
        raise ClientsFault(f"has no mapping for {name}")
    unknown = [str(key) for key in entry if key not in {one.name for one in fields(Client)}]
    if unknown:
        raise ClientsFault(f"has an unknown {', '.join(unknown)} of {name}")
    digest = entry.get("key_sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ClientsFault(f"has no SHA-256 of 64 hexadecimal digits in key_sha256 of {name}")
    models = entry.get("models") or ()
    if not isinstance(models, (list, tuple)) or not all(
        isinstance(one, str) and one for one in models
    ):
        raise ClientsFault(f"has no list of names in models of {name}")
    limits = {limit: _limit(name, limit, entry.get(limit)) for limit in LIMITS}
    return Client(
        digest,
        **limits,
        models=tuple(models),
        created=str(entry.get("created") or ""),
        priority=_priority(name, entry.get("priority")),
    )


def _limit(name: str, limit: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise ClientsFault(f"has no whole number from 1 to {MOST} in {limit} of {name}")
    return value


def _priority(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not FIRST <= value <= LAST:
        raise ClientsFault(f"has no whole number from {FIRST} to {LAST} in priority of {name}")
    return value


def written(clients: Mapping[str, Client]) -> str:
    """Return the text of a file with these clients; what has no value is left out."""
    entries = {
        name: {
            key: list(value) if key == "models" else value
            for key, value in asdict(client).items()
            if value
        }
        for name, client in clients.items()
    }
    return yaml.safe_dump({"clients": entries}, sort_keys=False, allow_unicode=True)


def map_lines(clients: Mapping[str, Client]) -> str:
    """Return the clients as HAProxy's map: digest, then name and limits in one word.

    roles/door/files/program/settings.lua reads that word; what is new comes last, since a worker
    of an earlier release may read it, too. Names of models are in hexadecimal,
    since they may hold anything.
    """
    return "".join(
        f"{client.key_sha256.upper()} {';'.join(_fields(name, client))}\n"
        for name, client in clients.items()
    )


def _fields(name: str, client: Client) -> list[str]:
    models = ",".join(one.encode().hex() for one in client.models)
    *limits, month = (getattr(client, limit) for limit in LIMITS)
    words = [name, *limits, models, month, client.priority or None]
    return ["" if one is None else str(one) for one in words]


def fault(text: str) -> str:
    """Return what keeps a text from being a file of clients, empty where nothing does."""
    try:
        parse(text)
    except ClientsFault as error:
        return str(error)
    return ""
