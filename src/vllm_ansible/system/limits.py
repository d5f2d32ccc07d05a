"""Open files and locked memory, for logins and for units of systemd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.plan.processes import LIMITS
from vllm_ansible.system.judged import Difference, Judged
from vllm_ansible.system.limit_files import LOGINS, UNITS, UNLIMITED, repair
from vllm_ansible.system.wants import Wants

# fs.nr_open, the most that Linux gives a process unless it is told otherwise.
OPEN_FILES = 1048576
ENOUGH_OPEN_FILES = int(LIMITS["nofile"])
TITLES = {"nofile": "open files", "memlock": "locked memory"}
FIX = (
    f"write {LOGINS} and {UNITS}, then systemctl daemon-reload and log in again; in a container "
    "--ulimit nofile=1048576 --ulimit memlock=-1"
)


def wanted(want: Wants, devices: Sequence[Any]) -> dict[str, int]:
    """Return the limits to ask for: open files, and bytes of locked memory where cards need it."""
    # Registered memory cannot be swapped; see nccl-memlock in record/diagnosis/signatures.
    locks = bool(devices) or (has_devices(want.accelerator) and want.accelerator_count > 1)
    return {"nofile": OPEN_FILES, **({"memlock": UNLIMITED} if locks else {})}


def judge(look: Mapping[str, Any], want: Wants, devices: Sequence[Any]) -> Judged:
    """Compare limits of this login and of units with what is wanted and can be had."""
    asked = wanted(want, devices)
    limits = look["limits"]
    # Without root it is not known what root could set: what is wanted is what is asked for.
    settable = {
        kind: limits["settable"].get(kind, value) if want.root else value
        for kind, value in asked.items()
    }
    needs = {"nofile": ENOUGH_OPEN_FILES, "memlock": UNLIMITED}
    differences, notes = [], []
    for kind in asked:
        least = lower(needs[kind], settable[kind])
        for place, (soft, hard) in places(limits, kind):
            if enough(soft, least) and enough(hard, least):
                continue
            # What is started for serving raises its own soft limit.
            needed = place == "login" and not enough(hard, least)
            differences.append(
                Difference(
                    what=f"{TITLES[kind]} of a {place}",
                    expected=f"at least {shown(least)}",
                    found=f"{shown(soft)}, at most {shown(hard)}",
                    fix=FIX,
                    needed=needed and (kind == "memlock" or not look["container"]),
                )
            )
        if not enough(settable[kind], needs[kind]):
            cause = Difference(
                what=f"{TITLES[kind]} that root may set",
                expected=f"at least {shown(needs[kind])}",
                found=f"{shown(settable[kind])}, and it cannot be raised",
                fix=want.limits
                or "start the container with --ulimit nofile=1048576 --ulimit memlock=-1, or with "
                "--cap-add SYS_RESOURCE",
            )
            if kind == "memlock":
                differences.append(cause)
            else:
                notes.append(f"{cause.what}: {cause.found}; {cause.fix}")
    return Judged(tuple(differences), tuple(notes), repair(settable, limits["units"]))


def places(limits: Mapping[str, Any], kind: str) -> list[tuple[str, tuple[int, int]]]:
    """Return where a limit holds, with its soft and hard value."""
    found = {"login": limits["login"], "unit of systemd": limits["units"]}
    return [(place, tuple(values[kind])) for place, values in found.items() if kind in values]


def enough(value: int, least: int) -> bool:
    """Tell whether a limit is at least another, where -1 is without limit."""
    return value == UNLIMITED or (least != UNLIMITED and value >= least)


def lower(one: int, other: int) -> int:
    """Return the lower of two limits."""
    return other if enough(one, other) else one


def shown(value: int) -> str:
    """Return a limit for people."""
    return "no limit" if value == UNLIMITED else str(value)
