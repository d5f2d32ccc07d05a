"""Where prompts go: what the command line says, else what the latest run that served says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.record import events
from vllm_ansible.record.redact import learn


@frozen
class Known:
    """What is known of an engine; empty or None where nobody says."""

    url: str = ""
    model: str = ""
    key_file: str = ""
    max_num_seqs: int | None = None


def recorded(runs: Path, inventory: Path, engine: str | None) -> Known:
    """Return what the latest run of an inventory in which engines answered says of one of them."""
    for directory in sorted(runs.glob("*T*Z-*"), reverse=True):
        engines = _served(directory, inventory)
        if engines:
            return _chosen(engines, engine, directory)
    raise PlanError(
        Problem(
            "no run has served this inventory",
            expected="a run in which the stage serve got an answer",
            found=f"none of {inventory} in {runs}",
            where=str(runs),
            fix="run site.yml first, or say --url, --model and --key-file",
        )
    )


def api(url: str) -> str:
    """Return a server's URL as far as `/v1`, or refuse what is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise PlanError(
            Problem(
                "--url is not the address of a server", "https://host:port/v1", str(error), "--url"
            )
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise PlanError(
            Problem("--url is not the address of a server", "https://host:port/v1", url, "--url")
        )
    if parts.username or parts.password:
        # Not shown again: it may hold a secret.
        raise PlanError(
            Problem("--url holds a name or password", "--key-file", "something before @", "--url")
        )
    base = url.rstrip("/")
    return base if base.endswith("/v1") else f"{base}/v1"


def read_key(path: str) -> str:
    """Return the key in a file, or refuse a file without one."""
    if not path:
        return ""
    try:
        key = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise PlanError(Problem(f"the key file {path} cannot be read: {why}")) from error
    if not key or not key.isprintable() or any(letter.isspace() for letter in key):
        raise PlanError(Problem("the key file holds no key", "one line", "none, or several", path))
    learn([key])
    return key


def _served(directory: Path, inventory: Path) -> list[Mapping[str, Any]]:
    """Return the engines that answered in a run of this inventory, latest last."""
    found: list[Mapping[str, Any]] = []
    try:
        for event in events.read(directory):
            if event["event"] == "run_start" and not _same(event, inventory):
                return []
            if event["event"] == "evidence" and event.get("gate") == "serve":
                found = (event.get("values") or {}).get("engines") or found
    except OSError:
        return []
    return found


def _same(event: Mapping[str, Any], inventory: Path) -> bool:
    """Tell whether a run was of this inventory."""
    base = Path(str(event.get("directory") or "."))
    return (base / str(event.get("inventory") or "")).resolve() == inventory.resolve()


def _chosen(engines: list[Mapping[str, Any]], name: str | None, directory: Path) -> Known:
    names = [str(engine["name"]) for engine in engines]
    if (name is None and len(engines) > 1) or (name is not None and name not in names):
        raise PlanError(
            Problem(
                "which engine is meant?" if name is None else f"there is no engine {name}",
                expected="one of " + ", ".join(names),
                found=name or "none was named",
                where=str(directory),
                fix="name it with --engine",
            )
        )
    one = engines[names.index(name) if name else 0]
    return Known(
        url=str(one["endpoint"]),
        model=str(one["served_name"]),
        key_file=str(one["api_key_file"] or ""),
        max_num_seqs=one.get("max_num_seqs"),
    )


def parameters(given: list[str]) -> dict[str, Any]:
    """Return what --parameter says: name=value, the value JSON or else a text."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise PlanError(Problem("--parameter is not name=value", "temperature=0", text))
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
