"""The splits that the stage `plan` serves as one engine, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.plan.estimate.layouts.candidate import (
    MOST_DATA,
    Candidate,
    alike,
    candidates,
    entries_of,
    even,
    of_experts,
    room,
)
from vllm_ansible.plan.estimate.layouts.choice import EQUAL, choose, surely, worth
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request, has_experts
from vllm_ansible.plan.estimate.layouts.verdict import Verdict


def data_ranks(one: Candidate) -> int:
    """Return the data ranks that a split is served as: replicas are ranks of their own."""
    return one.data * one.replicas


def devices_of(one: Candidate) -> int:
    """Return the devices of a split with all its replicas."""
    return one.ranks * one.replicas


def more(one: Candidate, there: Machines) -> int:
    """Return how many further engines of a split the machines would hold."""
    return room(replace(one, replicas=1), len(there.nodes), there.nodes[0].devices) - one.replicas


def splits(judge: Judge, data: bool, whole: bool = False) -> list[Candidate]:
    """Return the splits that may be one engine, whatever the machines' shape.

    data: also of data ranks. Those of a mixture of experts share the experts; those of a dense
    model are replicas, of which there are as many as the devices hold. whole: also with whole
    experts on each rank, where the question does not decide that.
    """
    there, decided = judge.request.machines, judge.request.whole_experts
    count, devices = len(there.nodes), min(node.devices for node in there.nodes)
    allowed = all(platform(node.accelerator.kind).expert_parallel for node in there.nodes)
    whole = (whole and allowed) if decided is None else decided
    experts = judge.facts.experts if data or whole else 0
    found = [
        replace(candidate, replicas=1)
        for candidate in candidates(there, judge.facts.layers, experts)
    ]
    if data and not judge.facts.experts and alike(there.nodes):
        found += [
            replace(one, replicas=room(one, count, devices))
            for one in found
            if one.pipeline == 1 and one.tensor <= devices and room(one, count, devices) > 1
        ]
    return of_experts(found, decided, whole)


def best_of(able: Sequence[Verdict], judge: Judge, data: bool) -> Verdict | None:
    """Return the engine to run among the splits of one engine, None where none runs."""
    best = choose(able, judge.request)
    return _wider(best, able, judge) if best is not None and data else best


def _wider(best: Verdict, within: Sequence[Verdict], judge: Judge) -> Verdict:
    """Return a split that uses more devices where several engines of the best one would do that.

    One engine cannot be several of a mixture, or several pipelines. Data ranks over more devices
    are taken in their place if they gain more than what counts as equal over one without any.
    """
    request = judge.request
    plain = choose([one for one in within if data_ranks(one.candidate) == 1], request)
    if plain is None or more(best.candidate, request.machines) < 1:
        return best
    least = max(worth(best, request), worth(plain, request) / EQUAL)
    wider = [
        one
        for one in within
        if data_ranks(one.candidate) > 1
        and devices_of(one.candidate) > devices_of(best.candidate)
        and one.accepted
        and worth(one, request) > least
        and (surely(one, request) or not surely(best, request))
    ]
    return choose(wider, request) or best


def one_engine(able: Sequence[Verdict], devices: int, request: Request) -> Verdict | None:
    """Return the best engine of data ranks on no fewer devices, None where none of these runs."""
    found = [
        one
        for one in able
        if 1 < data_ranks(one.candidate) <= MOST_DATA
        and devices_of(one.candidate) >= devices
        and entries_of(one.candidate, has_experts(request)) == 1
        and even(one.candidate, request.machines.nodes)
    ]
    return choose(found, request)
