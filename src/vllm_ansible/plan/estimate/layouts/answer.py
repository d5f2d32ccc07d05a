"""From a request to the layout to run, with all that people ask about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, usual_fabric
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts import apart
from vllm_ansible.plan.estimate.layouts.arguments import Start, start
from vllm_ansible.plan.estimate.layouts.choice import EQUAL, choose, why_not
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import Seat, seats, sites
from vllm_ansible.plan.estimate.layouts.request import Request, check
from vllm_ansible.plan.estimate.layouts.verdict import GIB, Verdict
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.throughput.estimate import Estimate
from vllm_ansible.problem import PlanError, Problem


class NoLayout(PlanError):
    """No layout of a sound question can run."""


@frozen
class Answer:
    """The layout to run.

    `alone` is one request by itself, `saturated` as many as the cache lets run; both are of one
    engine. `others` are all other candidates with the reason why not, best first.
    """

    request: Request
    chosen: Verdict
    start: Start
    alone: Estimate
    saturated: Estimate
    others: tuple[tuple[Verdict, str], ...]
    notes: tuple[str, ...]

    def seats(self) -> tuple[Seat, ...]:
        """Return where every rank of every engine runs."""
        return seats(self.chosen.candidate, self.request.machines)


def answer(request: Request) -> Answer:
    """Return the layout to run, or refuse with the reasons of the candidates nearest to running."""
    check(request)
    parts = of_each_maker(request)
    if len(parts) > 1:
        return _of_makers(request, parts)
    judge = Judge(request)
    verdicts = list(judge.all())
    return answered(judge, verdicts, choose(verdicts, request))


def answered(judge: Judge, verdicts: Sequence[Verdict], chosen: Verdict | None) -> Answer:
    """Return the answer that one verdict is, with the reasons against the others, or refuse."""
    request = judge.request
    if chosen is None or chosen.budget is None:
        raise NoLayout(_nothing(list(verdicts), request))
    rest = sorted(
        (one for one in verdicts if one is not chosen),
        key=lambda one: (not one.accepted, -one.output_rate, one.candidate.name),
    )
    one = chosen.candidate
    where = sites(one, request.machines)
    split = Split(one.tensor, one.pipeline, one.data, one.expert, chosen.layer_partition)
    speed = judge.speed(one, where, split, chosen.nodes)
    most = judge.most_running(chosen.budget, one, where)
    return Answer(
        request=request,
        chosen=chosen,
        start=start(chosen, request),
        alone=speed.at(1, request.input_tokens, request.output_tokens),
        saturated=speed.at(most, request.input_tokens, request.output_tokens),
        others=tuple((other, why_not(other, chosen, request)) for other in rest),
        notes=(*_notes(request, chosen), *_apart(judge, chosen)),
    )


def of_each_maker(request: Request) -> tuple[Request, ...]:
    """Return the question for the machines of each maker: no engine spans the software of two."""
    kinds = dict.fromkeys(node.accelerator.kind for node in request.machines.nodes)
    if len(kinds) == 1:
        return (request,)
    parts = []
    for kind in kinds:
        nodes = tuple(node for node in request.machines.nodes if node.accelerator.kind == kind)
        fabric = request.machines.fabric
        there = Machines(nodes, usual_fabric(nodes) if fabric.assumed else fabric)
        parts.append(replace(request, machines=there))
    return tuple(parts)


def _of_makers(request: Request, parts: Sequence[Request]) -> Answer:
    """Return the best answer among those of each maker, with what it leaves idle."""
    found, refused = [], []
    for part in parts:
        try:
            found.append(answer(part))
        except NoLayout as error:
            refused += [problem.message for problem in error.problems]
    best = choose([one.chosen for one in found], request)
    if best is None:
        line = request.machines.line()
        raise NoLayout(
            Problem(
                f"{request.model.name} has no layout on the machines of one maker of {line}: "
                f"{'; '.join(refused)}",
                expected="an engine on machines of one maker",
                found=line,
                fix="add machines of one of the makers",
            )
        )
    one = next(one for one in found if one.chosen is best)
    free = [
        f"{part.machines.line()} ({part.machines.devices} devices)"
        for part in parts
        if part.machines.nodes != one.request.machines.nodes
    ]
    told = f"{', '.join(free)}, of another maker, stay free: no engine spans two."
    return replace(one, notes=(*one.notes, told))


def _notes(request: Request, chosen: Verdict) -> tuple[str, ...]:
    """Return what was taken for granted, and what to know of the chosen layout."""
    kinds = {node.accelerator.name: node.accelerator for node in request.machines.nodes}
    notes = [*request.model.assumed]
    notes += [words for kind in kinds.values() for words in kind.assumed]
    fabric = request.machines.fabric
    if len(request.machines.nodes) > 1 and fabric.assumed:
        notes.append(
            f"No network was named: {fabric.node_rate * 8 / 1e9:.0f} Gb/s a node is taken, "
            f"{'over sockets' if fabric.tcp else 'with RDMA'}."
        )
    if request.speculative:
        notes.append("Rates are those without speculation: how many tokens are taken is not known.")
    used = chosen.candidate.ranks * chosen.candidate.replicas
    idle = request.machines.devices - used
    if idle:
        notes.append(f"{idle} of {request.machines.devices} devices stay free.")
    if chosen.budget and chosen.budget.reasons:
        notes += [f"{words[0].upper()}{words[1:]}." for words in chosen.budget.reasons]
    return tuple(notes)


def _apart(judge: Judge, chosen: Verdict) -> tuple[str, ...]:
    """Return what prefill and decode on engines of their own would bring, if much."""
    engine = apart.engine_of(judge, chosen)
    if engine is None:
        return ()
    found = apart.best(apart.divisions(engine, chosen.candidate.replicas), apart.Slo())
    if (
        found.output_rate < chosen.output_rate * EQUAL
        or found.token_time > chosen.token_time * EQUAL
    ):
        return ()
    return (
        f"As {found.prefill} engines for prefill and {found.decode} for decode, "
        f"{found.output_rate:,.0f} tokens/s at {apart.seconds(found.token_time)} a token, the "
        f"first after {apart.seconds(found.first_token)} (--apart; {apart.UNPROVEN}).",
    )


def _nothing(verdicts: list[Verdict], request: Request) -> Problem:
    """Return the refusal of machines on which no candidate runs: the widest ones say why."""
    line, name = request.machines.line(), request.model.name
    if request.wanted:
        wanted = replace(request.wanted, replicas=1).name
        return Problem(
            f"{wanted} of {name} cannot run on {line}: {verdicts[0].refusal}",
            found=wanted,
            fix="leave the layout to the planner, or change it",
        )
    same = {one.refusal for one in verdicts}
    if len(same) == 1:
        return Problem(f"{name} cannot run on {line}: {same.pop()}", found=line)
    nearest = max(
        verdicts,
        key=lambda one: (one.budget is not None, one.candidate.ranks, one.candidate.tensor),
    )
    total = request.model.bytes() / GIB
    memory = sum(node.accelerator.memory_bytes * node.devices for node in request.machines.nodes)
    return Problem(
        f"{name} has no layout on {line}: its weights are {total:.0f} GiB, the memory of the "
        f"devices is {memory / GIB:.0f} GiB, and {nearest.candidate.name} fails since "
        f"{nearest.refusal}",
        expected=f"devices for {total:.0f} GiB of weights and a cache",
        found=line,
        fix="add devices, take larger ones, or a more strongly quantized build",
    )
