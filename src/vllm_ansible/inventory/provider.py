"""What the inventory plugins of all providers share: what they read, and how they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from ansible import constants
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from vllm_ansible.planner.problem import Problem
from vllm_ansible.record import console


def variables(loader: Any, templar: Any, place: Path, read: Iterable[str]) -> dict[str, Any]:
    """Return the named variables of an inventory's group all, evaluated; -e has the last word."""
    given: dict[str, Any] = {}
    # One file, or a directory of them: wherever Ansible reads them too.
    for file in loader.find_vars_files(str(place), "all"):
        path = file.decode() if isinstance(file, bytes) else str(file)
        given |= loader.load_from_file(path, trusted_as_template=True) or {}
    given |= load_extra_vars(loader)
    templar.available_variables = given
    names = set(read)
    return {name: templar.template(value) for name, value in given.items() if name in names}


def refuse(problems: Sequence[Problem]) -> NoReturn:
    """Say what is wrong, and end: an inventory that cannot be read is no empty one."""
    refuse_told([{"msg": one.message, **asdict(one)} for one in problems])


def refuse_told(problems: Sequence[dict[str, Any]]) -> NoReturn:
    """Say what is wrong, as results of tasks have it, and end.

    An error of Ansible's own would be a warning among those of every other plugin that is asked
    whether it can read the file.
    """
    for problem in problems:
        lines = console.stage_line("inventory", problem["msg"])
        for name in ("expected", "found", "where", "fix"):
            if problem.get(name):
                lines += console.labelled(name, str(problem[name]), 3)
        for line in lines:
            Display().display(line, color=constants.COLOR_ERROR, stderr=True)
    raise SystemExit(1)
