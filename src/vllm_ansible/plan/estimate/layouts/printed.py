"""What an engine printed of its memory, beside what the planner expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.problem import PlanError

GIB = 1 << 30
# Weights of one rank; versions and kernels differ in what they keep beside the checkpoint's.
WEIGHTS_WITHIN = 0.02
# Half of the last decimal that is printed: below half a GiB it is more than two percent.
ROUNDING_GIB = 0.005


def joined(before: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of a log that is read in pieces: the most of each, the fewest tokens."""
    found = {**later, **before}
    for name, choose in (("weights_gib", max), ("kv_tokens", min), ("loading_seconds", max)):
        if name in before and name in later:
            found[name] = choose(before[name], later[name])
    return found


def beside(estimate: Mapping[str, Any], figures: Mapping[str, float]) -> dict[str, Any]:
    """Return expected and printed figures, and in `misses` a sentence for each beyond its band."""
    memory = {name: figures[name] for name in ("weights_gib", "kv_tokens") if name in figures}
    expected: dict[str, Any] = {}
    misses = []
    stages = estimate.get("stages") or []
    if stages:
        expected["weights_gib"] = round(max(one["weights_bytes"] for one in stages) / GIB, 2)
        expected["kv_tokens"] = list(estimate.get("kv_tokens") or [])
    weights, printed = expected.get("weights_gib"), figures.get("weights_gib")
    exact = max((one["weights_bytes"] for one in stages), default=0) / GIB
    apart = weights and printed and abs(printed - exact) > WEIGHTS_WITHIN * exact + ROUNDING_GIB
    if apart and not platform(_kind(str(estimate.get("accelerator", "")))).prints_all_memory:
        misses.append(
            f"the engine printed {printed:g} GiB of weights on a rank, and {weights:g} were "
            f"expected, within {WEIGHTS_WITHIN:.0%}"
        )
    band, tokens = expected.get("kv_tokens") or [], figures.get("kv_tokens")
    if band and tokens and not band[0] <= tokens <= band[-1]:
        misses.append(
            f"the engine printed {tokens:,.0f} KV tokens, and {band[0]:,} to {band[-1]:,} were "
            "expected"
        )
    return {"expected": expected, "printed": memory, "misses": misses}


def _kind(name: str) -> str:
    """Return the maker of an accelerator, empty for one that is not known here."""
    try:
        return accelerator(name).kind
    except PlanError:
        return ""
