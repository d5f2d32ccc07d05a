"""Whether an engine may be restarted now: pure rules over what the watchdog has found."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Optional

from .finding import ACTED, ENDED, FULL, OF_PROCESSES, SCRATCH
from .processes import TRACED
from .server import DRAINED

# What befalls an engine comes in several findings.
SETTLED_SECONDS = 5.0
# Stacks of a process that waits in a device may never come.
TAKEN_SECONDS = 90.0
# It writes every two seconds.
SILENT_SECONDS = 15.0

Finding = Mapping[str, Any]


def cause(
    state: Mapping[str, Any], engine: str, down: Collection[str], since: float, now: float
) -> Optional[dict[str, Any]]:
    """Return what was found of an engine that needs a restart, once the evidence is there.

    In the words of the first finding, whose kind is `first`; `kind` is that of the first from which
    the engine does not come back by itself.

    state: the state file of the watchdog. down: the engine's processes that do not run now. since:
    when the last restart ended; a hang that was found before it says nothing of what runs now.

    A rank that is stopped or was lost is no reason by itself: an engine that cannot do without it
    hangs, fails or ends. What a debugger holds is left to who debugs.
    """
    if silent(state, now):
        return None
    found = [dict(one) for one in state.get("findings", ()) if one["engine"] == engine]
    acted = next((one for one in found if _acted(one, down, since)), None)
    if acted is None:
        return None
    if any(_waits(one, now) or one["found"].endswith(TRACED) for one in found):
        return None
    return {**found[0], "first": found[0]["kind"], "kind": acted["kind"]}


def silent(state: Mapping[str, Any], now: float) -> str:
    """Return that the watchdog has not written its state for too long; empty if it has."""
    at = float(state.get("at", now))
    if now - at <= SILENT_SECONDS:
        return ""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    return f"the watchdog's state is more than {SILENT_SECONDS:g} s old, from {since}"


def _acted(finding: Finding, down: Collection[str], since: float) -> bool:
    if finding["kind"] == ENDED:
        return finding["process"] in down
    # A server that is drained refuses, too, and ends when it has finished.
    drained = DRAINED in finding["found"]
    return finding["kind"] in ACTED and not drained and finding["named_at"] > since


def _waits(finding: Finding, now: float) -> bool:
    if finding["kind"] not in OF_PROCESSES:
        return False
    age = now - float(finding["named_at"])
    stacks = bool(finding.get("stacks")) and not finding.get("taken_at")
    # Below 0 the clock was set back: it has been named for long enough.
    return 0 <= age < SETTLED_SECONDS or (stacks and 0 <= age < TAKEN_SECONDS)


def too_often(starts: Iterable[float], most: int, seconds: float, now: float) -> str:
    """Return why an engine must not be started again yet, empty where it may be."""
    recent = sum(abs(now - at) < seconds for at in starts)
    if recent < most:
        return ""
    return f"{recent} restarts were made within {seconds:g} s, {most} are allowed"


def hindered(state: Mapping[str, Any], engine: str) -> str:
    """Return why a start could not succeed, by the state file of the watchdog; empty if it may."""
    found = (dict(one) for one in state.get("findings", ()))
    full = (one for one in found if (one.get("engine"), one.get("kind")) == (engine, FULL))
    scratch = [f"{FULL} {engine} {path}" for path in SCRATCH]
    return next((str(one.get("found")) for one in full if one.get("key") not in scratch), "")


def ending(notices: Mapping[str, Any], engine: str, ends_at: float, need: float, now: float) -> str:
    """Return why a start would be lost with its machine, empty where it would not.

    notices: the state of the watch for notices. need: seconds that a start may take.
    """
    notice = notices.get("own") or (notices.get("engines") or {}).get(engine)
    if notice:
        return f"the provider ends {notice['host']}: {notice['cause']}"
    if ends_at and now + need >= ends_at:
        return f"this machine ends within the {need:g} s that a start may take"
    return ""
