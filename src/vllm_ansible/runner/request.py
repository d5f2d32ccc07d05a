"""What somebody asks to be run, checked before anything starts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_ansible.inventory.command_line import stages_of, tags_of, unknown_tags
from vllm_ansible.problem import close_match

from .outcome import RefusedInput

_MARKER = "callback_plugins/run_record.py"


@dataclass(frozen=True, slots=True)
class Request:
    """One invocation of ansible-playbook: in which checkout, on what, with what."""

    checkout: Path
    inventory: Path
    playbook: str
    tags: tuple[str, ...] = ()
    limit: str | None = None
    extra_vars: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False

    def short_inventory(self) -> str:
        """Return the inventory as somebody who stands in the checkout would name it."""
        inside = self.inventory.is_relative_to(self.checkout)
        return str(self.inventory.relative_to(self.checkout) if inside else self.inventory)

    def shown(self) -> str:
        """Return the command a person would type, without the values of its variables."""
        words = ["ansible-playbook", self.playbook, "-i", self.short_inventory()]
        if self.tags:
            words += ["--tags", ",".join(self.tags)]
        if self.limit:
            words += ["--limit", self.limit]
        if self.check:
            words.append("--check")
        for name in sorted(self.extra_vars):
            words += ["-e", f"{name}=..."]
        return shlex.join(words)


def check_request(
    inventory: str | Path,
    playbook: str,
    *,
    tags: str | Sequence[str] = (),
    until: str = "",
    limit: str | None = None,
    extra_vars: Mapping[str, Any] | None = None,
    check: bool = False,
    checkout: str | Path | None = None,
) -> Request:
    """Return the request, or refuse it in one line that says what there is instead.

    until: the last stage that is played; the run is that of all tags up to it.
    """
    root = find_checkout(checkout)
    if not (root / playbook).is_file():
        there = sorted(path.name for path in (root / "playbooks").glob("*.yml"))
        raise RefusedInput(
            f"playbook {playbook} does not exist in {root}; there are: "
            + (", ".join(["site.yml", *(f"playbooks/{name}" for name in there)]))
        )
    if until:
        tags = _stages_until(root / playbook, until, tags)
    chosen = tuple(filter(None, tags.split(","))) if isinstance(tags, str) else tuple(tags)
    if wrong := unknown_tags({"tags": chosen}, sorted(tags_of(root / playbook)), playbook):
        raise RefusedInput(" ".join(problem.sentence() for problem in wrong))
    return Request(
        checkout=root,
        inventory=find_inventory(inventory, root),
        playbook=playbook,
        tags=chosen,
        limit=limit,
        extra_vars=dict(extra_vars or {}),
        check=check,
    )


def _stages_until(playbook: Path, until: str, tags: str | Sequence[str]) -> list[str]:
    """Return the stages of a playbook up to one of them."""
    stages = stages_of(playbook)
    if tags:
        raise RefusedInput("--until plays all stages up to one: leave out --tags")
    if until not in stages:
        guess = close_match(until, stages)
        raise RefusedInput(
            f"--until {until}: no stage of {playbook.name} is called so; "
            + (guess or f"there are {', '.join(stages)}")
        )
    return stages[: stages.index(until) + 1]


def find_checkout(given: str | Path | None = None) -> Path:
    """Return the checkout given, or the one around the working directory, or our own."""
    if given is not None:
        root = Path(given).resolve()
        if not _is_checkout(root):
            raise RefusedInput(f"{given} is not a checkout of vllm-ansible: it lacks {_MARKER}")
        return root
    here = Path.cwd()
    for root in [here, *here.parents, *Path(__file__).resolve().parents]:
        if _is_checkout(root):
            return root
    raise RefusedInput(
        "no checkout of vllm-ansible here: change into it, or name it with --checkout"
    )


def _is_checkout(root: Path) -> bool:
    return (root / "ansible.cfg").is_file() and (root / _MARKER).is_file()


def find_inventory(given: str | Path, checkout: Path) -> Path:
    """Accept a path, or the bare name of one of the checkout's inventories."""
    name = str(given)
    for path in (Path(name), checkout / name, checkout / "inventories" / name):
        if name and path.exists():
            return path.resolve()
    there = sorted(path.name for path in (checkout / "inventories").glob("*") if path.is_dir())
    problem = f"inventory {name} does not exist" if name else "name an inventory with -i"
    raise RefusedInput(
        f"{problem}; there are: "
        + (", ".join(f"inventories/{name}" for name in there) or "none yet")
    )
