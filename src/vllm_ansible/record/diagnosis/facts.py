"""What is known of hosts when a failure is explained: versions, devices, limits, interfaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Value = str | int | float | bool | tuple[str, ...]

# What all ranks of an engine have in common: one log that prints it tells it of all.
SHARED = frozenset(
    ("vllm", "torch", "torch_cuda", "nccl", "transformers", "tensor_parallel", "model")
)
# Facts of no host in particular.
EVERYWHERE = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and where it is known from: `its log`, `preflight`, `reach`."""

    value: Value
    source: str

    @property
    def shown(self) -> str:
        """The value as a sentence has it."""
        if isinstance(self.value, tuple):
            return ", ".join(self.value) or "none"
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return str(self.value)


# By host, then by name.
Facts = Mapping[str, Mapping[str, Fact]]


def merged(parts: Iterable[Facts]) -> dict[str, dict[str, Fact]]:
    """Return all facts together; of two of one host and name the later counts."""
    found: dict[str, dict[str, Fact]] = {}
    for part in parts:
        for host, facts in part.items():
            found.setdefault(host, {}).update(facts)
    return found


def of(host: str, values: Mapping[str, Value], source: str) -> dict[str, dict[str, Fact]]:
    """Return the facts of one host that one source tells."""
    return {host: {name: Fact(value, source) for name, value in values.items()}}


def about(facts: Facts, host: str) -> dict[str, Fact]:
    """Return what is known of a host: its own facts, and what all hosts have in common.

    What only another host's log prints counts where it is of the engine, not of the host, and
    where all that print it agree.
    """
    common: dict[str, list[Fact]] = {}
    for others in facts.values():
        for name, fact in others.items():
            if name in SHARED:
                common.setdefault(name, []).append(fact)
    agreed = {
        name: told[0] for name, told in common.items() if len({one.value for one in told}) == 1
    }
    return {**agreed, **facts.get(EVERYWHERE, {}), **facts.get(host, {})}
