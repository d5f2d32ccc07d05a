"""A set of engines over machines that differ: an engine for each kind, more over what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node, usual_fabric
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.answer import Answer, NoLayout, answer, of_each_maker
from vllm_ansible.plan.estimate.layouts.choice import EQUAL, worth
from vllm_ansible.plan.estimate.layouts.request import Request, check
from vllm_ansible.plan.estimate.throughput.estimate import Band

# The asked load is dealt in proportion to what each part delivers, so often in turn.
ROUNDS = 2


@frozen
class Piece:
    """Devices of one node that follow one another, from the number `first` on."""

    node: Node
    first: int = 0


@frozen
class Member:
    """Engines of one layout on pieces of the machines, and what they deliver at their load."""

    pieces: tuple[Piece, ...]
    answer: Answer

    def devices(self, engine: int | None = None) -> tuple[tuple[str, int], ...]:
        """Return node and number of each device of one of its engines, or of all."""
        first = {piece.node.name: piece.first for piece in self.pieces}
        return tuple(
            (seat.node, first[seat.node] + seat.device)
            for seat in self.answer.seats()
            if engine is None or seat.engine == engine
        )

    @property
    def engines(self) -> int:
        """Return how many engines it has."""
        return self.answer.chosen.candidate.replicas


@frozen
class EngineSet:
    """Engines of one model that use no device twice; `idle` are devices of none, and why."""

    request: Request
    members: tuple[Member, ...]
    idle: tuple[tuple[Piece, str], ...]

    @property
    def output_rate(self) -> Band:
        """Return the output tokens per second of all engines that have a request, together."""
        chosen = [one.answer.chosen for one in self.members]
        # Each member is planned for one request at least: where there are fewer, the fast have one.
        left, bands = float(self.request.concurrency), []
        for one in sorted(chosen, key=lambda one: -one.output_rate / one.requests):
            share = min(left, one.requests)
            bands.append(one.rates.times(share / one.requests))
            left -= share
        return Band(
            sum(band.low for band in bands),
            sum(band.middle for band in bands),
            sum(band.high for band in bands),
        )

    @property
    def token_time(self) -> float:
        """Return the seconds between two tokens on the slowest of its engines."""
        return max(one.answer.chosen.token_time for one in self.members)

    @property
    def first_token(self) -> float:
        """Return the seconds to the first token on the slowest of its engines."""
        loads = [one.answer.chosen.load for one in self.members]
        return max(load.first_token.middle for load in loads if load)

    @property
    def devices(self) -> int:
        """Return how many devices have a rank."""
        return sum(len(one.devices()) for one in self.members)


def engine_set(request: Request) -> EngineSet:
    """Return the engines to run on machines that may differ, or refuse as `answer` does.

    No engine spans two makers. Each kind of node gets a layout of its own, and what that leaves
    free gets further engines as long as any fits; what holds no engine by itself is planned
    together with the rest of its maker. One engine over all of a maker's nodes is taken instead
    where it is more than 15 % better. A split that was asked for is one member.
    """
    check(request)
    if request.wanted:
        return _closed(request, [Member(_whole(request.machines.nodes), answer(request))])
    members: list[Member] = []
    for part in of_each_maker(request):
        members += _of_maker(part)
    if not members:
        # Nothing runs: the refusal of the whole says why.
        return _closed(request, [Member(_whole(request.machines.nodes), answer(request))])
    return _closed(request, _loaded(request, members))


def _of_maker(request: Request) -> list[Member]:
    """Return the engines on the machines of one maker, none where nothing fits."""
    pieces = _whole(request.machines.nodes)
    apart = list(_filled(request, pieces))
    if len(_kinds(pieces)) == 1 and apart:
        return apart
    try:
        joint = Member(pieces, answer(request))
    except NoLayout:
        return apart
    one = [joint, *_filled(request, _free(joint))]
    if not apart:
        return one
    found = _worth(_loaded(request, apart), request)
    return apart if found >= EQUAL * _worth(_loaded(request, one), request) else one


def _filled(request: Request, pieces: Sequence[Piece]) -> Iterator[Member]:
    """Yield engines on these pieces, kind by kind, then on what is left of all kinds together."""
    left: list[Piece] = []
    for alike in _kinds(pieces):
        one = _member(request, alike)
        if one is None:
            left += alike
        else:
            yield one
            yield from _filled(request, _free(one))
    if left and len(_kinds(left)) > 1 and (one := _member(request, left)):
        yield one
        yield from _filled(request, _free(one))


def _member(request: Request, pieces: Sequence[Piece]) -> Member | None:
    """Return the engines of the best layout on these pieces, None where none fits."""
    machines = _machines(request, [piece.node for piece in pieces])
    share = max(1, request.concurrency * machines.devices // request.machines.devices)
    try:
        found = answer(replace(request, machines=machines, concurrency=share))
    except NoLayout:
        return None
    return Member(tuple(pieces), found)


def _loaded(request: Request, members: Sequence[Member]) -> list[Member]:
    """Return the same engines, each with the part of the load that it is fast enough for."""
    found = list(members)
    for _ in range(ROUNDS if len(found) > 1 else 0):
        rates = [one.answer.chosen.output_rate for one in found]
        shares = _dealt(request.concurrency, rates)
        found = [
            Member(one.pieces, answer(replace(one.answer.request, concurrency=share, wanted=same)))
            for one, share in zip(found, shares, strict=True)
            for same in (one.answer.chosen.candidate,)
        ]
    # The reasons against other layouts are those of the first question.
    return [
        Member(
            now.pieces,
            replace(
                now.answer,
                request=replace(now.answer.request, wanted=None),
                others=before.answer.others,
            ),
        )
        for now, before in zip(found, members, strict=True)
    ]


def _dealt(whole: int, rates: Sequence[float]) -> list[int]:
    """Return a whole number of requests for each rate, at least one, in proportion to them."""
    total = sum(rates)
    exact = [whole * rate / total for rate in rates]
    shares = [max(1, int(part)) for part in exact]
    order = sorted(range(len(shares)), key=lambda place: shares[place] - exact[place])
    for place in order[: max(0, whole - sum(shares))]:
        shares[place] += 1
    return shares


def _worth(members: Sequence[Member], request: Request) -> float:
    """Return how good engines are for what is asked: all together, or the best of them."""
    each = [worth(one.answer.chosen, request) for one in members]
    return sum(each) if request.objective == "throughput" else max(each)


def _closed(request: Request, members: Sequence[Member]) -> EngineSet:
    """Return the set with what it leaves idle."""
    used = {device for one in members for device in one.devices()}
    idle: list[tuple[Piece, str]] = []
    known: dict[tuple[str, int], str] = {}
    for node in request.machines.nodes:
        free = [number for number in range(node.devices) if (node.name, number) not in used]
        for run in _runs(free):
            piece = Piece(replace(node, devices=len(run)), run[0])
            kind = node.accelerator.name, len(run)
            known[kind] = known.get(kind) or _why(request, piece)
            idle.append((piece, known[kind]))
    return EngineSet(request, tuple(members), tuple(idle))


def _why(request: Request, piece: Piece) -> str:
    """Return why no engine is on devices that stay idle."""
    try:
        answer(replace(request, machines=_machines(request, [piece.node]), wanted=None))
    except NoLayout as error:
        return error.problems[0].message
    return "another engine on them was not asked for"


def _kinds(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Return the pieces by accelerator and number of devices, in their order."""
    found: dict[tuple[str, int], list[Piece]] = {}
    for piece in pieces:
        found.setdefault((piece.node.accelerator.name, piece.node.devices), []).append(piece)
    return list(found.values())


def _whole(nodes: Sequence[Node]) -> tuple[Piece, ...]:
    return tuple(Piece(node) for node in nodes)


def _free(member: Member) -> list[Piece]:
    """Return the pieces of which no engine of a member uses a device."""
    used: Mapping[tuple[str, int], None] = dict.fromkeys(member.devices())
    found = []
    for piece in member.pieces:
        numbers = range(piece.first, piece.first + piece.node.devices)
        free = [number for number in numbers if (piece.node.name, number) not in used]
        found += [Piece(replace(piece.node, devices=len(run)), run[0]) for run in _runs(free)]
    return found


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Return numbers in runs that follow one another."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def _machines(request: Request, nodes: Sequence[Node]) -> Machines:
    """Return some of the machines with their network."""
    fabric = request.machines.fabric
    return Machines(tuple(nodes), usual_fabric(tuple(nodes)) if fabric.assumed else fabric)
