"""What a watchdog has found wrong: what it is about, since when, in which words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ENDED, HUNG, REFUSES = "ended", "hung", "refuses"
# No start succeeds beside it.
FULL = "full"
# What an engine does not come back from by itself.
ACTED = (ENDED, HUNG, REFUSES)
# What befalls an engine's processes; what is wrong with a host may come and go beside it.
OF_PROCESSES = (*ACTED, "stopped", "waiting", "lost")
# A start removes what an engine has left there.
SCRATCH = ("/dev/shm", "/tmp")  # noqa: S108 of vLLM's queues, and of compilers


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `key` stays the same while it lasts; times are of time.time()."""

    key: str
    kind: str
    engine: str
    process: str
    since: float
    found: str
    fix: str
    pid: int = 0
    stage: str = ""

    @property
    def follows(self) -> bool:
        """Tell whether another finding says more: an engine fails because a rank of it does."""
        return self.kind in (HUNG, REFUSES)

    def document(self) -> dict[str, Any]:
        """Return it as the state file holds it."""
        return asdict(self)
