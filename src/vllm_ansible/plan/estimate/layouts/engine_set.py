"""A set of engines over machines that differ: an engine for each kind, more over what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vllm_ansible.accelerators.machines import Machines, Node, usual_fabric
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.answer import (
    Answer,
    NoLayout,
    answer,
    answered,
    of_each_maker,
)
from vllm_ansible.plan.estimate.layouts.arguments import max_model_len
from vllm_ansible.plan.estimate.layouts.candidate import MOST_DATA, Candidate, entries_of
from vllm_ansible.plan.estimate.layouts.choice import EQUAL, worth
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.request import Request, check, has_experts
from vllm_ansible.plan.estimate.layouts.single import one_engine
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
    where it is more than 15 % better; on nodes of one kind, where one engine of data ranks is no
    more than 15 % worse than several engines on no more devices: it has one address by itself.
    What the stage `plan` does not build comes only where nothing else runs on a maker's machines.
    A split that was asked for is one member.
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
    apart = [one for one in _filled(request, pieces) if not unbuilt(one)]
    if len(_kinds(pieces)) == 1 and apart:
        return _as_one(request, apart) or apart
    try:
        joint = Member(pieces, answer(request))
    except NoLayout:
        return apart
    if apart and unbuilt(joint):
        return apart
    one = [joint, *(one for one in _filled(request, _free(joint)) if not unbuilt(one))]
    if not apart:
        return one
    found = _worth(_loaded(request, apart), request)
    return apart if found >= EQUAL * _worth(_loaded(request, one), request) else one


def _as_one(request: Request, several: list[Member]) -> list[Member]:
    """Return one engine that has one address by itself in place of several, if that is as good."""
    before, mixture = several[0].answer, has_experts(request)
    engines = sum(entries_of(one.answer.chosen.candidate, mixture) for one in several)
    if engines == 1 or request.objective != "throughput":
        return []
    able = [before.chosen, *(one for one, _ in before.others)]
    best = one_engine(able, sum(len(one.devices()) for one in several), request)
    if best is None or worth(best, request) < EQUAL * _worth(_loaded(request, several), request):
        return []
    others = [one for one in able if one is not best]
    return [Member(_whole(request.machines.nodes), answered(Judge(request), others, best))]


def unbuilt(member: Member) -> str:
    """Return why the stage `plan` does not build a member, nothing where it does.

    It builds engines of equal accelerators, with as many ranks on each of their nodes.
    """
    nodes = {name for name, _ in member.devices()}
    if len({one.node.accelerator.name for one in member.pieces if one.node.name in nodes}) > 1:
        return "no engine over nodes that differ"
    if not all(_even(member.devices(engine)) for engine in range(member.engines)):
        return "no engine with more ranks on one of its nodes than on another"
    return ""


@frozen
class Built:
    """One engine as the stage builds it: engines of a member, by their numbers.

    `length` is the longest request of all engines of the set, None for the model's own.
    """

    member: Member
    parts: tuple[int, ...]
    length: int | None

    @property
    def candidate(self) -> Candidate:
        """Return its split; several parts are data ranks of it."""
        return replace(self.member.answer.chosen.candidate, replicas=len(self.parts))

    @property
    def devices(self) -> tuple[tuple[str, int], ...]:
        """Return node and number of the device of each rank."""
        return tuple(seat for part in self.parts for seat in self.member.devices(part))

    @property
    def concurrency(self) -> int:
        """Return its part of the requests of its member, at least one."""
        whole = self.member.answer.request.concurrency
        return max(1, round(whole * len(self.parts) / self.member.engines))


def built(found: EngineSet) -> tuple[Built, ...]:
    """Return the engines that the stage builds of a set.

    Replicas of a dense model on nodes that are used alike are data ranks of one engine; each engine
    of a mixture, whose data ranks would share their experts, is one. All of a set take requests of
    one length at most: whoever sends a request does not choose the engine.
    """
    mixture = has_experts(found.request)
    groups = [
        (member, part)
        for member in found.members
        if not unbuilt(member)
        for part in _grouped(member, mixture)
    ]
    lengths = [max_model_len(one.answer.chosen, one.answer.request) for one, _ in groups]
    length = min((one for one in lengths if one), default=None)
    return tuple(Built(member, parts, length) for member, parts in groups)


def _grouped(member: Member, mixture: bool) -> list[tuple[int, ...]]:
    """Return the engines of a member by the one that each is a part of."""
    one, replicas = member.answer.chosen.candidate, member.engines
    if entries_of(one, mixture) > 1 or one.data > 1 or not _even(member.devices()):
        return [(number,) for number in range(replicas)]
    each = replicas // len({node for node, _ in member.devices()}) or 1
    size = min(replicas, max(1, MOST_DATA // each) * each)
    return [tuple(range(first, min(first + size, replicas))) for first in range(0, replicas, size)]


def _even(devices: Sequence[tuple[str, int]]) -> bool:
    """Tell whether each node has as many of these devices."""
    named = [node for node, _ in devices]
    return len({named.count(node) for node in set(named)}) == 1


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
    whole = len(found) == 1 and found[0].answer.request.concurrency == request.concurrency
    for _ in range(0 if whole else ROUNDS if len(found) > 1 else 1):
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
