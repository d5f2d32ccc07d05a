"""What a gate says about the concerns of one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.system.judge import Judgement

GOOD = {"manage": "managed", "check": "checked"}


def measurements(
    judged: Mapping[str, Judgement], name: str, root: bool, script: str, check_mode: bool
) -> list[dict[str, Any]]:
    """Return one measurement for each concern that is judged, and for each difference left in it.

    script is where the administrator's script lies, if one was written. In check mode what would
    have been mended does not count.
    """
    found = []
    for concern, one in judged.items():
        if one["why"]:
            continue
        left = [difference for difference in one["differences"] if difference["needed"]]
        if check_mode and one["mode"] == "manage":
            left = []
        for difference in left:
            fix = str(difference["fix"])
            if difference["on_host"]:
                fix = f"as root on {name}: {fix}"
                if script:
                    fix += f"; or all at once: ssh {name} sudo sh < {script}"
                if one["mode"] == "check" and root and any(one["repair"].values()):
                    fix += f"; or let this play do it: system_{concern}: manage"
            found.append(
                {
                    "what": difference["what"],
                    "ok": False,
                    "expected": difference["expected"],
                    "found": difference["found"],
                    "where": f"{name} (system_{concern}: {one['mode']})",
                    "fix": fix,
                }
            )
        if not left:
            found.append({"what": concern.replace("_", " "), "ok": True, "where": name})
    return found


def summary(judged: Mapping[str, Judgement], name: str) -> str:
    """Return one line: what is in order, what does not apply, and what could be better."""
    parts = []
    for mode, word in GOOD.items():
        names = [one for one, it in judged.items() if it["mode"] == mode and not it["why"]]
        if names:
            parts.append(f"{', '.join(names).replace('_', ' ')} {word}")
    for why in dict.fromkeys(it["why"] for it in judged.values() if it["why"]):
        names = [one.replace("_", " ") for one, it in judged.items() if it["why"] == why]
        parts.append(f"{', '.join(names)} not judged: {why}")
    wishes = sum(len(it["differences"]) for it in judged.values())
    if wishes:
        parts.append(f"{wishes} recommended change(s)")
    return f"{name}: " + "; ".join(parts)


def values(judged: Mapping[str, Judgement]) -> dict[str, Any]:
    """Return mode, reason, differences and notes of each concern, without what would mend them."""
    kept = ("mode", "why", "differences", "notes")
    return {concern: {key: one[key] for key in kept} for concern, one in judged.items()}


def needs_administrator(judged: Mapping[str, Judgement], root: bool) -> bool:
    """Tell whether something needed is different that this run may not mend."""
    return any(
        difference["needed"]
        for one in judged.values()
        if one["mode"] == "check" or not root
        for difference in one["differences"]
    )
