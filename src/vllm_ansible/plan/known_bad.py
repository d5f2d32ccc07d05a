"""Versions of vLLM that others have reported not to do what a plan asks of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from vllm_ansible.problem import Problem

# `versions` of vLLM, over how many `hosts` at least one copy of a model is split, and a flag
# `unless` which all is well.
FILE = Path(__file__).with_name("known_bad.json")


def known_bad(version: str, engines: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return what the installed version would do to engines of a plan; nothing is the usual case.

    Raises ValueError where the version is none, as of a build that has no number.
    """
    installed = Version(version)
    return [
        _problem(version, engine, one)
        for engine in engines
        for one in _entries()
        if SpecifierSet(one["versions"]).contains(installed, prereleases=True)
        and hosts_of_a_copy(engine) >= one["hosts"]
        and one.get("unless") not in engine["arguments"]
    ]


def hosts_of_a_copy(engine: Mapping[str, Any]) -> int:
    """Return over how many hosts one copy of the model is split: a data rank never crosses one."""
    return 1 if engine["layout"].get("data", 1) > 1 else len(engine["hosts"])


def _entries() -> Iterator[Mapping[str, Any]]:
    yield from json.loads(FILE.read_text())


def _problem(version: str, engine: Mapping[str, Any], one: Mapping[str, Any]) -> Problem:
    name, hosts = engine["name"], hosts_of_a_copy(engine)
    return Problem(
        f"vLLM {version} {one['what']}, and engine {name} has {hosts} ({', '.join(one['refs'])})",
        expected=f"another version than {one['versions']}"
        + (f", or {one['unless']}" if "unless" in one else ""),
        found=version,
        where=f"engine {name}",
        fix=one["fix"],
    )
