"""What is to be built from source, and the key under which its wheel is kept and found again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem, close_match

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
# A branch or a tag may mean something else tomorrow, and a key must not.
REVISION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
ADDRESS = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+|[/~]\S*")
SECRET = re.compile(r"https?://[^/@]+@|://[^/@]*:[^/@]*@")
FOLDER = re.compile(r"[\w.+-]+(/[\w.+-]+)*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEYS = ("name", "source", "revision", "directory", "settings", "environment")


@frozen
class Build:
    """One distribution at one revision, and how it is built."""

    name: str
    source: str
    revision: str
    directory: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def key(self, target: Mapping[str, str]) -> str:
        """Return one value for all that makes its wheel another one.

        target is what it is built for. The address is not part of it: a revision is the same
        wherever it comes from.
        """
        what = [self.name, self.revision, self.directory]
        how = [dict(self.settings), dict(self.environment)]
        text = json.dumps([what, how, dict(target)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def parse_builds(wanted: object) -> tuple[Build, ...]:
    """Return the builds of an inventory, or refuse with everything that is wrong with them."""
    if not isinstance(wanted, (list, tuple)):
        raise PlanError(_problem("engine_build is not a list", "a list", repr(wanted)))
    problems: list[Problem] = []
    builds: list[Build] = []
    for number, one in enumerate(wanted, 1):
        found = _problems(number, one)
        problems += found
        if not found:
            builds.append(_build(one))
    names = [build.name for build in builds]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(_problem(f"engine_build names {name} twice", "each once", name))
    if problems:
        raise PlanError(problems)
    return tuple(builds)


def wanted_wheels(
    builds: tuple[Build, ...], host: Mapping[str, Any], python: str
) -> list[dict[str, Any]]:
    """Return what a host needs: each build with its key there, as modules take it."""
    # Where builds compile for no device, it counts as none, whatever lies around. Elsewhere many
    # builds compile for what they see and nothing else.
    device = platform(host["accelerator"]).builds_for_devices
    system = f"{host.get('distribution', '')} {host.get('distribution_version', '')}".strip()
    target = {
        # Its C and C++ libraries are those that the wheel needs at least.
        "system": system,
        "python": python,
        "cuda": str(host.get("cuda_toolkit", "")) if device else "",
        "accelerator": str(host.get("accelerator_name", "")) if device else "",
        "architecture": str(host["architecture"]),
    }
    return [
        {
            "key": build.key(target),
            "name": build.name,
            "source": build.source,
            "revision": build.revision,
            "directory": build.directory,
            "settings": dict(build.settings),
            "environment": dict(build.environment),
            **target,
        }
        for build in builds
    ]


def _build(one: Mapping[str, Any]) -> Build:
    return Build(
        re.sub(r"[-_.]+", "-", str(one["name"])).lower(),
        str(one["source"]),
        str(one["revision"]),
        str(one.get("directory") or ""),
        {str(name): str(value) for name, value in (one.get("settings") or {}).items()},
        {str(name): str(value) for name, value in (one.get("environment") or {}).items()},
    )


def _problems(number: int, one: object) -> list[Problem]:
    """Return what is wrong with one entry."""
    if not isinstance(one, Mapping):
        return [
            _problem(f"entry {number} of engine_build is not a mapping", "name, source, revision")
        ]
    label = f"engine_build {one.get('name') or number}"
    found = [
        _problem(f"{label} has no {key}", f"one of {', '.join(KEYS)}", key, close_match(key, KEYS))
        for key in one
        if key not in KEYS
    ]
    rules = (
        ("name", NAME, "the name of a distribution, such as vllm", ""),
        ("source", ADDRESS, "an address of a git repository, or an absolute path here", ""),
        (
            *("revision", REVISION, "a whole commit, 40 digits"),
            f"git ls-remote {one.get('source', 'ADDRESS')} {one.get('revision', '')}",
        ),
    )
    for key, pattern, expected, fix in rules:
        value = str(one.get(key) or "")
        if not pattern.fullmatch(value):
            found.append(_problem(f"{label}: {key} is not {expected}", expected, value, fix))
    # The address is a part of commands, which everyone on the controller can see.
    if SECRET.search(str(one.get("source") or "")):
        fix = "let git ask its credential helper, or use SSH"
        found.append(_problem(f"{label}: source holds a secret", "none", "not shown", fix))
    directory = str(one.get("directory") or "")
    if directory and (not FOLDER.fullmatch(directory) or ".." in directory.split("/")):
        found.append(_problem(f"{label}: directory", "a folder of the repository", directory))
    for key in ("settings", "environment"):
        if not isinstance(one.get(key) or {}, Mapping):
            found.append(_problem(f"{label}: {key} is not a mapping", "a mapping", repr(one[key])))
    environment = one.get("environment") or {}
    for name in environment if isinstance(environment, Mapping) else ():
        if not VARIABLE.fullmatch(str(name)):
            found.append(_problem(f"{label}: environment", "names of variables", str(name)))
    return found


def _problem(message: str, expected: str, found: str = "", fix: str = "") -> Problem:
    return Problem(message, expected, found or "nothing", fix=fix or "correct engine_build")
