"""Prefill and decode on engines of their own: how many of each, beside as many replicas.

All from the planner's rates, and what NIXL takes to move a prompt's cache: a decode engine posts
one descriptor for each block of each layer between two of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import ceil, floor
from typing import Any

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.candidate import alike
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import sites
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.estimate.memory.kv_cache import growing, kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.throughput.collectives import links
from vllm_ansible.plan.estimate.throughput.estimate import Estimate, Speed

UNPROVEN = "measured on two H200 alone: tokens/s within 11 % of the plan, replicas within 6 %"
# Seconds in which a decode engine posts the transfer of one block of one layer, and until it has
# come, between two devices of one host: its own counters of 6 prompts, one at a time, each of 9,216
# blocks of 64 KiB (tests/data/h200-stages.json). UCX's test of cuda_ipc gives 2.3 us for a small
# message and 4.3 for one of 64 KiB (openucx/ucx#3740).
POSTED, MOVED = 3.0e-6, 4.05e-6
# Over InfiniBand a descriptor is posted some 20 times as fast (vllm#55434).
POSTED_ACROSS = POSTED / 20
# Tokens of a block: of latent attention FlashMLA's, else vLLM's default.
LATENT_BLOCK, BLOCK = 64, 16
# Halvings of the number of clients that wait for prefill.
HALVINGS = 40


@frozen
class Slo:
    """Seconds that clients wait at most, to the first token and between tokens; None is any."""

    first_token: float | None = None
    token_time: float | None = None


@frozen
class Division:
    """So many engines of each role, and what clients see; without prefill they are replicas.

    `at_once` are the seconds until all have their first token where all clients ask together.
    """

    tensor: int
    prefill: int
    decode: int
    output_rate: float
    first_token: float
    token_time: float
    at_once: float

    @property
    def name(self) -> str:
        """Return the engines in words."""
        if not self.prefill:
            return f"TP{self.tensor}: {self.decode} replica{'s' * (self.decode > 1)}"
        return f"TP{self.tensor}: {self.prefill} prefill + {self.decode} decode"

    @property
    def devices(self) -> int:
        """Return the devices of all of them."""
        return self.tensor * (self.prefill + self.decode)

    def holds(self, slo: Slo) -> bool:
        """Tell whether clients wait no longer than they may."""
        limits = ((self.first_token, slo.first_token), (self.token_time, slo.token_time))
        return all(most is None or found <= most for found, most in limits)


@frozen
class Advice:
    """The best division and the best replicas, and the fewest devices of each that hold the SLO.

    `moved` are the seconds in which the KV cache of a prompt moves, `posted` those in which its
    decode engine makes no step meanwhile.
    """

    slo: Slo
    apart: Division
    replicas: Division
    moved: float
    posted: float
    least_apart: Division | None
    least_replicas: Division | None


class Engine:
    """Engines of one size that are planned, each alone or with a role.

    Clients of a set are in one of three places: prefill, the transfer, decode. So many are at each
    that as many leave it as come.
    """

    def __init__(
        self,
        request: Request,
        tensor: int,
        speed: Speed,
        most: float,
        moved: float,
        posted: float = 0.0,
    ):
        self.tensor, self.moved, self.posted = tensor, moved, posted
        self._request, self._speed, self._most = request, speed, most
        # Of one engine that does nothing else, in tokens a second, and in seconds a prompt.
        self.prompts = speed.prefill_rate()
        self.taken = request.input_tokens / self.prompts
        self.alone = speed.placed.chat + speed.prefill(request.input_tokens)
        self._decoding: dict[int, Estimate] = {}

    def replicas(self, engines: int) -> Division:
        """Return what engines that do both deliver."""
        request = self._request
        each = max(1.0, request.concurrency / engines)
        sizes = request.input_tokens, request.output_tokens
        found = self._speed.at(each, *sizes, self._most)
        rate = found.output_rate.middle * request.concurrency / each
        replies = rate / request.output_tokens / engines
        # A prompt waits for those of others that its engine takes in, as in `_waits`.
        busy = min(1.0, replies * self.taken) * (1 - 1 / each)
        waited = busy * self.taken / 2 / (1 - busy)
        return Division(
            self.tensor,
            0,
            engines,
            rate,
            found.first_token.middle + waited,
            found.token_time.middle,
            found.wave.last,
        )

    def apart(self, prefill: int, decode: int) -> Division:
        """Return what engines of both roles deliver."""
        request = self._request
        clients, alone = float(request.concurrency), self.alone
        fastest = prefill / self.taken
        least, most = 0.0, clients
        for _ in range(HALVINGS):
            decoding = (least + most) / 2
            replies = self._replies(decoding, decode)
            waiting = clients - decoding - replies * self.moved
            if replies < fastest and waiting > replies * self._waits(waiting, replies, prefill):
                least = decoding
            else:
                most = decoding
        replies = self._replies(most, decode)
        waiting = max(clients - most - replies * self.moved, replies * alone)
        plain = self._at(1).first_token.middle - alone
        # Beyond what they run together, requests wait there before their first token.
        running = min(most, decode * max(1.0, self._most))
        first = (waiting + most - running) / replies + self.moved + plain
        return Division(
            self.tensor,
            prefill,
            decode,
            replies * request.output_tokens,
            first,
            running / replies / request.output_tokens,
            max(alone, ceil(clients / prefill) * self.taken) + self.moved + plain,
        )

    def _waits(self, there: float, replies: float, prefill: int) -> float:
        """Return the seconds of a prompt at its prefill engine, where so many of all clients are.

        It waits for those before it, one of which is half done (mean value analysis of a closed
        network, after Reiser and Schweitzer).
        """
        others = 1 - 1 / max(1.0, self._request.concurrency / prefill)
        before = max(0.0, there / prefill - replies * self.taken / prefill / 2)
        return self.alone + self.taken * before * others

    def _replies(self, decoding: float, decode: int) -> float:
        """Return the replies a second of decode engines with so many requests together."""
        each = max(1.0, decoding / decode)
        below = floor(each)
        share = each - below
        rate = self._at(below).output_rate.middle * (1 - share)
        rate += self._at(below + 1).output_rate.middle * share if share else 0.0
        replies = rate / self._request.output_tokens
        # Between its steps an engine posts the transfer of each prompt that comes.
        replies /= 1 + replies * self.posted
        # An engine without a request delivers nothing.
        return min(decode, decoding) * replies

    def _at(self, requests: int) -> Estimate:
        if requests not in self._decoding:
            sizes = self._request.input_tokens, self._request.output_tokens
            self._decoding[requests] = self._speed.at(requests, *sizes, self._most, True)
        return self._decoding[requests]


def advice(request: Request, slo: Slo) -> Advice | str:
    """Return what roles would bring on these machines, or why that cannot be computed."""
    if not alike(request.machines.nodes):
        return "the machines differ"
    judge = Judge(request)
    planned = [
        (found, one.candidate.replicas) for one in judge.all() if (found := engine_of(judge, one))
    ]
    if not planned:
        return "fewer than two engines of one server on one host each fit"
    apart = best([row for one, most in planned for row in divisions(one, most)], slo)
    replicas = best([one.replicas(most) for one, most in planned], slo)
    of = next(one for one, _ in planned if one.tensor == apart.tensor)
    return Advice(
        slo,
        apart,
        replicas,
        of.moved,
        of.posted,
        _least((row for one, most in planned for row in _smaller(one, most)), slo),
        _least((one.replicas(n) for one, most in planned for n in range(1, most + 1)), slo),
    )


def engine_of(judge: Judge, one: Verdict) -> Engine | None:
    """Return what a set would be made of: one server on one host, of which two and more fit."""
    split, request = one.candidate, judge.request
    wide = split.pipeline > 1 or split.data > 1 or one.nodes > 1
    if not one.accepted or one.budget is None or wide or split.replicas < 2:
        return None
    where = sites(split, request.machines)
    parts = Split(split.tensor, 1, 1, split.expert, one.layer_partition)
    speed = judge.speed(split, where, parts, one.nodes)
    node = request.machines.nodes[0]
    there = links(node.accelerator, request.machines.fabric, 1, 1)
    rate = there.inside_rate
    if len(request.machines.nodes) > 1:
        rate = min(rate, there.across_rate / node.devices)
    (each,) = kv_bytes_per_token(
        request.model, parts, request.kv_cache_dtype, request.engine_version
    )
    descriptors = _descriptors(request)
    across = len(request.machines.nodes) > 1
    posted = descriptors * (POSTED_ACROSS if across else POSTED)
    moved = max(each * request.input_tokens / rate, posted if across else descriptors * MOVED)
    most = judge.most_running(one.budget, split, where)
    return Engine(request, split.tensor, speed, most, moved, posted)


def _descriptors(request: Request) -> int:
    """Return how many pieces a rank's cache of one prompt is in: a block of a layer each."""
    prompt = request.input_tokens
    return sum(
        ceil(min(prompt, one.window or prompt) / (LATENT_BLOCK if one.kind == "mla" else BLOCK))
        for layer in request.model.layers
        for one in growing(layer.kv)
        if one.kind not in ("linear", "none")
    )


def divisions(engine: Engine, engines: int) -> Iterator[Division]:
    """Yield every way to give so many engines one role or the other."""
    for prefill in range(1, engines):
        yield engine.apart(prefill, engines - prefill)


def _smaller(engine: Engine, engines: int) -> Iterator[Division]:
    for fewer in range(2, engines + 1):
        yield from divisions(engine, fewer)


def best(found: Iterable[Division], slo: Slo) -> Division:
    """Return what delivers most within the SLO; where nothing holds it, what delivers most."""
    return max(found, key=lambda one: (one.holds(slo), one.output_rate, -one.token_time))


def _least(found: Iterable[Division], slo: Slo) -> Division | None:
    """Return what holds the SLO with the fewest devices, None where nothing is asked or holds."""
    if slo == Slo():
        return None
    good = [one for one in found if one.holds(slo)]
    return min(good, key=lambda one: (one.devices, -one.output_rate), default=None)


def lines(found: Advice | str) -> list[str]:
    """Return the advice as people read it."""
    title = f"  prefill and decode apart ({UNPROVEN})"
    if isinstance(found, str):
        return [title, f"    not computed: {found}"]
    rows = [found.apart, found.replicas]
    return [
        title,
        *(f"    {one.name:<28}{_words(one, found.slo)}" for one in rows),
        f"    apart against replicas: {_beside(found.apart, found.replicas)}",
        f"    a prompt's KV cache moves in {seconds(found.moved)} over links without other load, "
        f"for {seconds(found.posted)} of which its decode engine makes no step",
        *_within(found),
    ]


def document(found: Advice | str) -> dict[str, Any]:
    """Return the advice as JSON holds it."""
    if isinstance(found, str):
        return {"note": UNPROVEN, "why": found}
    return {"note": UNPROVEN, **asdict(found)}


def seconds(value: float) -> str:
    """Return a time in words."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.{int(value < 0.1)}f} ms"


def _words(one: Division, slo: Slo) -> str:
    missed = "" if one.holds(slo) else ", misses the SLO"
    return (
        f"{one.output_rate:,.0f} tokens/s, first after {seconds(one.first_token)} "
        f"(all at once: {seconds(one.at_once)}), {seconds(one.token_time)} a token{missed}"
    )


def _beside(apart: Division, replicas: Division) -> str:
    """Return what roles win or lose against replicas, as factors."""
    rate, first, each = (
        getattr(apart, name) / getattr(replicas, name)
        for name in ("output_rate", "first_token", "token_time")
    )
    return f"x {rate:.2f} tokens/s, x {first:.2f} to the first token, x {each:.2f} a token"


def _within(found: Advice) -> list[str]:
    slo = found.slo
    if slo == Slo():
        return []
    limits = [
        f"{seconds(most)} {words}"
        for most, words in ((slo.first_token, "to the first token"), (slo.token_time, "a token"))
        if most is not None
    ]
    rows = [
        f"{one.name} ({one.devices} device{'s' * (one.devices > 1)})" if one else f"no {what}"
        for what, one in (("division", found.least_apart), ("replicas", found.least_replicas))
    ]
    return [f"    least within {' and '.join(limits)}: {'; '.join(rows)}"]
