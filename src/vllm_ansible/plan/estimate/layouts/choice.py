"""Which candidate to run, and for every other one the reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from vllm_ansible.plan.estimate.layouts.candidate import entries_of, even
from vllm_ansible.plan.estimate.layouts.request import Request, has_experts
from vllm_ansible.plan.estimate.layouts.verdict import GIB, Verdict

# Candidates this close to the best are equals, and the simplest of them is taken: the model's
# own band is wider.
EQUAL = 0.85
# Of those that are as simple as each other, replicas and tensor-parallel groups in a node, the
# fewest devices in step are taken among what is this close to the best. What they have in common
# cancels: two H200 were 13 % faster as a group than as replicas, planned 14 %.
SAME = 0.95


def choose(verdicts: Sequence[Verdict], request: Request) -> Verdict | None:
    """Return the verdict to run, or None when none can run.

    What fits only if the overhead is not at the high end of its band comes after what surely fits.
    What the stage `plan` does not build comes only where nothing else runs. A tensor-parallel group
    over several nodes is taken only where links were measured, or where nothing else can run.
    """
    able = [one for one in verdicts if one.accepted]
    nodes = request.machines.nodes
    able = [one for one in able if even(one.candidate, nodes)] or able
    able = [one for one in able if surely(one, request)] or able
    inside = [one for one in able if one.tensor_nodes == 1]
    if inside and not request.machines.fabric.measured:
        able = inside
    if not able:
        return None
    best = max(worth(one, request) for one in able)
    equals = [one for one in able if worth(one, request) >= best * EQUAL]
    # What uses fewer devices to no loss leaves them for others.
    plainest = min(one.order for one in equals)
    same = [one for one in equals if one.order == plainest]
    best = max(worth(one, request) for one in same)
    near = [one for one in same if worth(one, request) >= best * SAME]
    return min(near, key=lambda one: (one.candidate.tensor, -worth(one, request)))


def worth(verdict: Verdict, request: Request) -> float:
    """Return how good a verdict is for what matters; more is better."""
    if request.objective == "latency":
        return 1.0 / verdict.token_time
    if request.objective == "context":
        return float(verdict.kv_tokens / verdict.candidate.data)
    return verdict.output_rate


def surely(verdict: Verdict, request: Request) -> bool:
    """Tell whether one request of full length fits with the highest overhead of its band too."""
    return verdict.budget is not None and verdict.budget.kv_tokens[0] >= request.longest


def why_not(verdict: Verdict, chosen: Verdict, request: Request) -> str:
    """Return in one sentence why a candidate is not the chosen one."""
    if not verdict.accepted:
        return verdict.refusal
    ratio = worth(verdict, request) / worth(chosen, request)
    figures = _figures(verdict, chosen, request)
    if surely(chosen, request) and not surely(verdict, request):
        return f"{figures}, but it may not fit: {_tight(verdict)}"
    if verdict.tensor_nodes > 1 and not request.machines.fabric.measured and ratio > EQUAL:
        return (
            f"{figures} by the cards' rates, but each of its all-reduces crosses "
            f"{verdict.tensor_nodes} nodes: only measured links can justify that"
        )
    mixture = has_experts(request)
    several, here = (entries_of(one.candidate, mixture) for one in (verdict, chosen))
    if several > here == 1 and ratio >= EQUAL:
        gain = f"{_gain(ratio, request)}, within the band"
        return f"{figures}: {gain}, and it takes {several} engines behind one door"
    if ratio < EQUAL or (verdict.order < chosen.order and ratio < 1):
        return f"{figures}: {_cause(verdict, chosen)}"
    if ratio < SAME and verdict.order == chosen.order:
        return f"{figures}: {_gain(ratio, request)}, and it is no plainer"
    gain = f"{_gain(ratio, request)}, within the band"
    gain = "as good" if abs(ratio - 1) < 0.005 else gain
    return f"{figures}: {gain}, and {_plainer(verdict, chosen)}"


def _gain(ratio: float, request: Request) -> str:
    """Return by how much a candidate is better or worse than the chosen one."""
    better, worse = ("faster", "slower") if request.objective == "latency" else ("more", "less")
    return f"{abs(ratio - 1):.0%} {better if ratio > 1 else worse}"


def _figures(verdict: Verdict, chosen: Verdict, request: Request) -> str:
    """Return what matters of both, the number of the chosen one with its unit."""
    pair = (verdict, chosen)
    if request.objective == "latency":
        mine, best = (f"{one.token_time * 1e3:.1f}" for one in pair)
        return f"{mine} against {best} ms a token"
    if request.objective == "context":
        mine, best = (f"{one.kv_tokens // one.candidate.data:,}" for one in pair)
        return f"{mine} against {best} KV tokens"
    mine, best = (f"{one.output_rate:,.0f}" for one in pair)
    return f"{mine} against {best} tokens/s"


def _tight(verdict: Verdict) -> str:
    """Return the numbers of a candidate that fits only just."""
    if verdict.budget is None:
        return ""
    least = min(verdict.budget.stages, key=lambda stage: stage.kv_bytes.low)
    return (
        f"{least.weights / GIB:.1f} GiB of weights and {least.overhead.mid / GIB:.1f} to "
        f"{least.overhead.high / GIB:.1f} of overhead"
    )


def _plainer(verdict: Verdict, chosen: Verdict) -> str:
    """Return in what the chosen candidate is the plainer one."""
    one, other = verdict.candidate, chosen.candidate
    for mine, theirs, words in (
        (verdict.tensor_nodes, chosen.tensor_nodes, "a tensor-parallel group over {} nodes"),
        (verdict.nodes, chosen.nodes, "an engine over {} nodes"),
        (one.data, other.data, "{} data-parallel ranks in step"),
        (one.pipeline, other.pipeline, "{} pipeline stages"),
        (int(one.expert), int(other.expert), "whole experts on each rank"),
        (one.tensor, other.tensor, "tensor parallelism of {}"),
    ):
        if mine > theirs:
            return f"it takes {words.format(mine)}"
    return "it is no plainer"


def _cause(verdict: Verdict, chosen: Verdict) -> str:
    """Return what costs a slower candidate the most."""
    mine, best = verdict.load, chosen.load
    if mine is None or best is None:
        return "its cache is smaller"
    wanted = verdict.requests
    if mine.running < mine.concurrency * 0.9:
        held = verdict.candidate.replicas * mine.running
        return f"its cache lets {held:.0f} of {wanted:.0f} sequences run"
    pairs = (
        ("memory", "weights and cache"),
        ("collectives", "collectives"),
        ("kernels", "kernels"),
        ("arithmetic", "products"),
        ("launches", "launches"),
    )
    name, words = max(
        pairs, key=lambda pair: getattr(mine.decode, pair[0]) - getattr(best.decode, pair[0])
    )
    there, here = getattr(mine.decode, name) * 1e3, getattr(best.decode, name) * 1e3
    if round(there, 1) > round(here, 1):
        return f"{words} take {there:.1f} ms a step instead of {here:.1f}"
    working, busy = (_working(one) for one in (verdict, chosen))
    if working < busy:
        return f"only {working} devices work"
    later, sooner = (one.token_time.middle * 1e3 for one in (mine, best))
    if round(later, 1) > round(sooner, 1):
        return f"a token takes {later:.1f} ms instead of {sooner:.1f}"
    return "its steps with prompts take longer"


def _working(verdict: Verdict) -> int:
    """Return how many devices work where requests are fewer than engines."""
    return verdict.candidate.ranks * min(verdict.candidate.replicas, ceil(verdict.requests))
