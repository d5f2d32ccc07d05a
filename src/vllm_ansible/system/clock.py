"""Whether something keeps the clock of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.system.judged import Difference, Judged, Repair
from vllm_ansible.system.wants import Wants


def irrelevant(look: Mapping[str, Any]) -> str:
    """Return why the clock is not the host's own; empty where it is."""
    if look["container"] or not look["time"]["settable"]:
        return "a container has the clock of its machine"
    return ""


def judge(look: Mapping[str, Any], want: Wants) -> Judged:
    """Ask that the clock is synchronised, or that something is at work on it."""
    found = look["time"]
    if found["synchronised"]:
        return Judged()
    daemons = ", ".join(found["daemons"])
    if daemons:
        # Minutes after a boot this is normal; `verify.reach.clocks` judges how far they are apart.
        return Judged(notes=(f"{daemons} runs, and has not yet synchronised the clock",))
    service = "chronyd" if want.red_hat else "chrony"
    difference = Difference(
        what="the clock",
        expected="synchronised by chrony or systemd-timesyncd",
        found="not synchronised, and no time daemon runs",
        fix=f"install chrony, then systemctl enable --now {service}",
    )
    return Judged((difference,), (), Repair(packages=("chrony",), services=(service,)))
