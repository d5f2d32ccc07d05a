"""Read the state that a watchdog keeps, whoever has written it."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .. import forked, safely
from ..log_file import end_of

MOST_BYTES = 1 << 20


def kept(state_dir: str) -> dict[str, Any]:
    """Return the state, its age in seconds, and why it cannot be read if so.

    It is read as its writer: root would read whatever a link there leads to.
    """

    def read(tell: forked.Tell) -> None:
        path = os.path.join(state_dir, "state.json")
        if os.path.exists(path):
            tell("state", json.loads(end_of(path, 0, MOST_BYTES)[0]))

    told = safely.as_holder(state_dir, read)
    now = time.time()
    state = told.get("state") or {}
    for finding in state.get("findings", ()):
        finding["for_seconds"] = max(0.0, now - finding["since"])
    age = max(0.0, now - state["at"]) if state else 0.0
    return {"state": state, "age": age, "error": told.get("error", "")}
