"""What the inventory plugins of all providers share: what they read, and how they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from ansible import constants, context
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from vllm_ansible import terminal as console
from vllm_ansible.inventory.specs import load_options
from vllm_ansible.inventory.typed import as_given, differing
from vllm_ansible.problem import Problem

REPOSITORY = Path(__file__).resolve().parents[3]
# What reads the inventory alone, as the stage validate does.
READS_ALONE = ("validate.yml", "sbatch.yml")


def touches_machines() -> bool:
    """Tell whether this run goes on to machines: else nobody need be asked which there are.

    Only then can an inventory be checked, or a script be written, away from the cluster.
    """
    books = {Path(str(one)).name for one in context.CLIARGS.get("args") or ()}
    tags = {tag for word in context.CLIARGS.get("tags") or () for tag in str(word).split(",")}
    return not books or not (books <= {*READS_ALONE} or tags == {"validate"})


def variables(loader: Any, templar: Any, place: Path, read: Iterable[str]) -> dict[str, Any]:
    """Return the named variables of an inventory's group all, evaluated; -e has the last word."""
    given: dict[str, Any] = {}
    # One file, or a directory of them: wherever Ansible reads them too.
    for file in loader.find_vars_files(str(place), "all"):
        path = file.decode() if isinstance(file, bytes) else str(file)
        given |= loader.load_from_file(path, trusted_as_template=True) or {}
    options, extra = load_options(REPOSITORY / "roles"), load_extra_vars(loader)
    given |= {**extra, **differing(extra, options, as_given)}
    templar.available_variables = given
    names = set(read)
    found = {name: templar.template(value) for name, value in given.items() if name in names}
    return {**found, **differing(found, options)}


def refuse(problems: Sequence[Problem], stage: str = "inventory") -> NoReturn:
    """Say what is wrong, and end: an inventory that cannot be read is no empty one."""
    refuse_told([{"msg": one.message, **asdict(one)} for one in problems], stage)


def warn(stage: str, text: str) -> None:
    """Say something before any stage, if there is anything to say."""
    for line in console.stage_line(stage, text) if text else []:
        Display().display(line, color=constants.COLOR_WARN, stderr=True)


def refuse_told(problems: Sequence[dict[str, Any]], stage: str = "inventory") -> NoReturn:
    """Say what is wrong, as results of tasks have it, and end.

    An error of Ansible's own would be a warning among those of every other plugin that is asked
    whether it can read the file.
    """
    for problem in problems:
        lines = console.stage_line(stage, problem["msg"])
        for name in ("expected", "found", "where", "fix"):
            if problem.get(name):
                lines += console.labelled(name, str(problem[name]), 3)
        for line in lines:
            Display().display(line, color=constants.COLOR_ERROR, stderr=True)
    raise SystemExit(1)
