"""Several models on one cluster: which nodes each gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.answer import Answer, NoLayout, answer, of_each_maker
from vllm_ansible.plan.estimate.layouts.choice import choose
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.problem import Problem

# Nodes are dealt one by one up to here, and in as many equal shares of a larger cluster.
SHARES = 16


@frozen
class Share:
    """So many nodes of the maker at this place, for one model."""

    maker: int
    count: int


def share(requests: Sequence[Request]) -> tuple[Answer, ...]:
    """Return a plan for each model, on nodes of its own in the order of the machines.

    Each gets the fewest nodes of one maker on which it runs; those left go one after the other to
    the model that gains the largest part of its rate. Where there are fewer nodes than models, the
    devices of each node are dealt instead. Raises NoLayout where they do not suffice.
    """
    if len(requests) == 1:
        return (answer(requests[0]),)
    there = requests[0].machines
    whole = there if len(there.nodes) >= len(requests) else _halved(there, len(requests))
    makers = [part.machines for part in of_each_maker(replace(requests[0], machines=whole))]
    least = next(_least(requests, makers, ()), None)
    if least is None:
        raise NoLayout(_refusal(requests, makers, whole))
    return _all_dealt(requests, makers, least, max(1, len(whole.nodes) // SHARES))


def where(part: Machines, whole: Machines) -> str:
    """Return the names of a plan's nodes, those that follow one another by their ends."""
    names = [node.name for node in whole.nodes]
    told: list[list[str]] = []
    for node in part.nodes:
        follows = told and told[-1][-1] in names[:-1] and node.name in names
        if follows and names[names.index(told[-1][-1]) + 1] == node.name:
            told[-1].append(node.name)
        else:
            told.append([node.name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in told)


def _all_dealt(
    requests: Sequence[Request], makers: Sequence[Machines], shares: Sequence[Share], step: int
) -> tuple[Answer, ...]:
    """Return the plans with what is left dealt to those who gain by it."""
    held = list(shares)
    found = [_on(request, makers, held, place) for place, request in enumerate(requests)]
    settled: set[int] = set()
    while True:
        gains: dict[int, float] = {}
        for place in set(range(len(held))) - settled:
            more = _larger(held, place, step)
            if _taken(more, held[place].maker) <= len(makers[held[place].maker].nodes):
                now, then = found[place], _on(requests[place], makers, more, place)
                if now and then:
                    gains[place] = then.chosen.output_rate / now.chosen.output_rate
        best = max(gains, key=lambda place: gains[place], default=None)
        if best is None or gains[best] <= 1.0:
            return tuple(one for one in found if one)
        more = _larger(held, best, step)
        dealt = [_on(request, makers, more, place) for place, request in enumerate(requests)]
        if all(dealt):
            held, found = more, dealt
        else:
            # Nodes of another size come next to another model, on which it does not fit.
            settled.add(best)


def _larger(shares: Sequence[Share], place: int, step: int) -> list[Share]:
    return [
        Share(one.maker, one.count + step * (index == place)) for index, one in enumerate(shares)
    ]


def _taken(shares: Sequence[Share], maker: int) -> int:
    """Return how many nodes of a maker these shares take."""
    return sum(one.count for one in shares if one.maker == maker)


def _least(
    requests: Sequence[Request], makers: Sequence[Machines], taken: tuple[Share, ...]
) -> Iterator[tuple[Share, ...]]:
    """Yield shares on which every model runs, what each would choose by itself first."""
    if len(taken) == len(requests):
        yield taken
        return
    request = requests[len(taken)]
    able: list[tuple[Share, Answer]] = []
    for maker, machines in enumerate(makers):
        free = len(machines.nodes) - _taken(taken, maker)
        for count in range(1, free + 1):
            mine = (*taken, Share(maker, count))
            found = _on(request, makers, mine, len(taken))
            if found:
                able.append((mine[-1], found))
                break
    while able:
        fewest = min(one.count for one, _ in able)
        equals = [(one, found) for one, found in able if one.count == fewest]
        best = choose([found.chosen for _, found in equals], request)
        one = next(pair for pair in equals if pair[1].chosen is best)
        able.remove(one)
        yield from _least(requests, makers, (*taken, one[0]))


def _on(
    request: Request, makers: Sequence[Machines], shares: Sequence[Share], place: int
) -> Answer | None:
    """Return the plan of the model at a place on its share, after those before it."""
    one = shares[place]
    machines = makers[one.maker]
    start = _taken(shares[:place], one.maker)
    part = Machines(machines.nodes[start : start + one.count], machines.fabric)
    try:
        return answer(replace(request, machines=part))
    except NoLayout:
        return None


def _refusal(requests: Sequence[Request], makers: Sequence[Machines], whole: Machines) -> Problem:
    """Return the refusal of the first model that finds no place after those before it."""
    taken: tuple[Share, ...] = ()
    while (more := next(_least(requests[: len(taken) + 1], makers, taken), None)) is not None:
        taken = more
    request = requests[len(taken)]
    most = max(
        range(len(makers)), key=lambda maker: len(makers[maker].nodes) - _taken(taken, maker)
    )
    free = makers[most].nodes[_taken(taken, most) :]
    said = "no node is left for it"
    if free:
        try:
            answer(replace(request, machines=Machines(free, makers[most].fabric)))
        except NoLayout as error:
            said = error.problems[0].message
    return Problem(
        f"{request.model.name} does not fit beside the others on {whole.line()}: {said}",
        fix="add nodes, or plan fewer models",
    )


def _halved(there: Machines, models: int) -> Machines:
    """Return the machines with each node taken for as many parts as models need."""
    parts = -(-models // len(there.nodes))
    nodes = []
    for node in there.nodes:
        size = node.devices // parts
        if size:
            nodes += [
                Node(f"{node.name}, devices {size * place} to {size * (place + 1) - 1}",
                     node.accelerator, size)
                for place in range(parts)
            ]  # fmt: skip
    if len(nodes) < models:
        raise NoLayout(
            Problem(
                f"{models} models need at least a device each, and there are {there.devices}",
                fix="add devices, or plan fewer models",
            )
        )
    return Machines(tuple(nodes), there.fabric)
