"""The parts of a judgement: differences, notes, and what would mend them."""

from __future__ import annotations

from dataclasses import dataclass, field

# Written at the top of every file of ours.
HEADER = "# Written by vllm-ansible; see docs/system.md. Changes here are lost.\n"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as wanted; only what is needed stops a run.

    on_host: whether the fix is done on the host, as root.
    """

    what: str
    expected: str
    found: str
    fix: str
    needed: bool = True
    on_host: bool = True


@dataclass(frozen=True)
class File:
    """A whole file; validate is a command that checks it, where `%s` is its path."""

    path: str
    text: str
    validate: str = ""


@dataclass(frozen=True)
class Repair:
    """What mends the differences of a concern, in this order.

    script are lines of POSIX sh for an administrator, where files and commands alone would not do.
    """

    packages: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    modules: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    script: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """What one look at a concern comes to."""

    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    repair: Repair = field(default_factory=Repair)
