"""An engine's start, look by look: whether it moves, what it does, and what has taken its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.node.engine.log import GRAPHS, KERNELS, place
from vllm_ansible.record.host_progress import Silence

# From here on the console says for how long it has been quiet, long before giving up.
QUIET_SECONDS = 60
# What holds up the others is named after so long, well before the wait ends.
BEHIND_SECONDS = 40
# A debugger that reads stacks stops a process for seconds, too.
STOPPED_SECONDS = 10
# What a start spends its time on, in the order of a start, with the phases of a log that are it.
CAUSES: dict[str, tuple[str, ...]] = {
    "starting": (
        "starting",
        "waiting for Ray to place the ranks",
        "connecting ranks",
        "starting the server",
        "listening",
    ),
    "loading": ("loading", "loading shards"),
    KERNELS: (KERNELS,),
    GRAPHS: (GRAPHS,),
    "profiling": ("profiling",),
    "warming up": ("warming up",),
    "capturing graphs": ("capturing graphs",),
}
FIRST_ANSWER = "first answer"
_CAUSE = {phase: cause for cause, phases in CAUSES.items() for phase in phases}


class Start:
    """What the looks at a starting engine have shown so far; times are of one clock of ours."""

    def __init__(
        self,
        silence_seconds: float,
        compile_seconds: float,
        now: float,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        # The names of the engine's hosts by address, the server's own first.
        self._hosts = dict(hosts or {})
        self._ranks: dict[str, dict[str, str]] = {}
        self._stopped: dict[str, float] = {}
        self._silence, self._allowed = Silence(silence_seconds, now), silence_seconds
        # Compilers that work keep a silence alive, but not for ever.
        self._wordless = Silence(compile_seconds, now)
        self._told: Mapping[str, Any] = phase("starting")
        # What it did before its log said that kernels are compiled: no line says when that ends.
        self._before, self._compiled = self._told, False
        self._ticks: dict[tuple[int, int], int] = {}
        self._heard = self._worked = 0
        self._compiling_at: float | None = None
        self.compilers: list[str] = []
        self.phase = self._told
        self._now = now
        self.quiet = self.compiling = 0.0
        self._spans: dict[str, float] = {}

    def observe(
        self, look: Mapping[str, Any], now: float, read: int = 0, elsewhere: float = 0.0
    ) -> None:
        """Note one look, as the module engine_log_info returns it.

        read: how often what its processes have read was seen to grow. elsewhere: seconds that it
        may be silent beside, since hosts that are not looked at still load.
        """
        self._heard += look["news"]
        for address, ranks in (look.get("ranks") or {}).items():
            known = self._ranks.setdefault(self._host(address), {})
            known.update({name: phase or known.get(name, "") for name, phase in ranks.items()})
        still = look.get("stopped") or []
        self._stopped = {one: self._stopped.get(one, now) for one in still}
        self._now = now
        if look["phase"]:
            self._told, self._compiled = look["phase"], False
            self._before = self._told if self._told["name"] != KERNELS else self._before
        running = look.get("compilers") or []
        ticks = {(one["pid"], one["started"]): one["ticks"] for one in running}
        self._worked += ticks != self._ticks
        self._ticks, self._compiled = ticks, self._compiled or bool(ticks)
        self.compilers = [f"{one['command']} (process {one['pid']})" for one in running]
        self.phase = self._doing()
        said = self._heard, self._told["name"], self._told["done"]
        # What is read moves, too, and ends with loading.
        self._wordless.observe((*said, read), now)
        self._silence.allowed_seconds = self._allowed + elsewhere
        self.quiet = self._silence.observe((*said, self._worked, read), now)
        if self.phase["name"] not in (KERNELS, GRAPHS):
            self._compiling_at = None
        elif self._compiling_at is None:
            self._compiling_at = now
        self.compiling = now - (now if self._compiling_at is None else self._compiling_at)
        for name, seconds in (look.get("spans") or {}).items():
            self._spans[name] = self._spans.get(name, 0.0) + seconds

    def _doing(self) -> Mapping[str, Any]:
        """Return the phase: compilers that run say more than a line that is past."""
        name = self._told["name"]
        if self._ticks:
            return self._told if name in (KERNELS, GRAPHS) else phase(KERNELS)
        return self._before if name == KERNELS and self._compiled else self._told

    def _host(self, address: str) -> str:
        own = next(iter(self._hosts.values()), "")
        return self._hosts.get(address, address) if address else own

    def behind(self) -> str:
        """Return which ranks hold up the others: stopped ones, or hosts behind the furthest one."""
        held = [one for one, at in self._stopped.items() if self._now - at >= STOPPED_SECONDS]
        if held:
            return "; ".join(held)
        reached = dict.fromkeys(self._hosts.values(), "")
        for host, ranks in self._ranks.items():
            reached[host] = max(ranks.values(), key=place, default="")
        furthest = max(reached.values(), key=place, default="")
        late = [host for host, phase in reached.items() if place(phase) < place(furthest)]
        return "; ".join(
            f"{_ranks(self._ranks.get(host, {}))} on {host} "
            f"{f'came as far as {reached[host]}' if reached[host] else 'said nothing yet'}, "
            f"others as far as {furthest}"
            for host in late
        )

    def given_up(self, now: float) -> str:
        """Return why nobody waits any longer, or nothing while there is hope."""
        if found := self._given_up(now):
            behind = self.behind()
            return f"{found}; {behind}" if behind else found
        held = [one for one, at in self._stopped.items() if now - at >= BEHIND_SECONDS]
        if held and self.quiet >= BEHIND_SECONDS:
            return f"nothing new for {self.quiet:.0f} s while {self.phase['name']}: {held[0]}"
        return ""

    def _given_up(self, now: float) -> str:
        name = self.phase["name"]
        named = ", ".join(self.compilers[:3]) + (", ..." if len(self.compilers) > 3 else "")
        if self._silence.broken(now):
            hung = f"; no processor time taken by {named}" if named else ""
            return f"nothing new for {self.quiet:.0f} s while {name}{hung}"
        if named and self._wordless.broken(now):
            allowed = f"{self._wordless.allowed_seconds:.0f} s"
            return f"no line for more than {allowed} while {name}; still at work: {named}"
        return ""

    def words(self) -> str:
        """Return what it does, for people."""
        name = str(self.phase["name"])
        if self.compilers:
            number = len(self.compilers)
            count = f"{number} compiler{'s' if number != 1 else ''}"
            return f"{name} ({count}, {self.compiling:.0f} s)"
        behind = self.behind() if self.quiet >= BEHIND_SECONDS else ""
        if self.quiet > QUIET_SECONDS or behind:
            quiet = f"{name}, nothing new for {self.quiet // 10 * 10:.0f} s"
            return f"{quiet}; {behind}" if behind else quiet
        return name

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each cause has taken, in the order of a start."""
        found: dict[str, float] = {}
        for name, seconds in self._spans.items():
            cause = _CAUSE.get(name, name)
            found[cause] = found.get(cause, 0.0) + seconds
        return {cause: round(found[cause], 1) for cause in CAUSES if round(found.get(cause, 0), 1)}


def _ranks(ranks: Mapping[str, str]) -> str:
    """Return ranks in words."""
    return ", ".join(sorted(ranks)) or "the ranks"


def phase(name: str, done: int = 0, total: int = 0) -> Mapping[str, Any]:
    """Return a phase as modules tell it."""
    return {"name": name, "done": done, "total": total}
