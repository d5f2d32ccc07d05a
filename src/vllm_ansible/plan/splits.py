"""The splits that this project serves as one engine."""

from __future__ import annotations

from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.single import data_ranks, splits
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.layout import host_counts
from vllm_ansible.plan.ports import WORKERS
from vllm_ansible.plan.sizes import Layout


def candidate_of(layout: Layout, experts: bool, whole: bool = False) -> Candidate:
    """Return a layout as it is judged: data ranks share experts, or are replicas.

    whole: an engine without data ranks keeps its experts whole, too (enable_expert_parallel).
    """
    if experts and (layout.data > 1 or whole):
        return Candidate(layout.tensor, layout.pipeline, layout.data, True)
    return Candidate(layout.tensor, layout.pipeline, replicas=layout.data)


def written(one: Candidate) -> str:
    """Return a split as an inventory has it."""
    sizes = {"data": data_ranks(one), "tensor": one.tensor, "pipeline": one.pipeline}
    told = ", ".join(f"{name}: {size}" for name, size in sizes.items() if size > 1)
    return f"{{{told or 'tensor: 1'}}}"


def served(engine: Engine, judge: Judge, data: bool, whole: bool = False) -> list[Verdict]:
    """Return the verdict of each split that this project serves, as one engine.

    data: also of data ranks. whole: also with whole experts on each rank, where the engine's
    arguments do not decide that.
    """
    there = judge.request.machines
    count, devices = len(there.nodes), min(node.devices for node in there.nodes)
    found = splits(judge, data, whole)
    return [judge.verdict(one) for one in found if _servable(one, engine, count, devices, data)]


def _servable(candidate: Candidate, engine: Engine, nodes: int, devices: int, data: bool) -> bool:
    """Tell whether this project serves the split: even on hosts, data ranks where they may be."""
    ranks = data_ranks(candidate)
    if ranks > 1:
        even = ranks % (engine.nodes or len(engine.hosts) or 1) == 0
        return data and even and candidate.tensor <= devices and ranks <= WORKERS
    if engine.executor == "dp" and engine.layout is None:
        return False
    layout = Layout(candidate.tensor, candidate.pipeline)
    return any(
        count <= nodes and layout.world_size // count <= devices
        for count in host_counts(layout, engine.nodes)
    )
