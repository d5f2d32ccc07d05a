"""Engines that only prefill and engines that only decode, out of those the machines hold."""

from __future__ import annotations

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.throughput.estimate import Speed


@frozen
class Groups:
    """So many engines of each kind, output tokens per second of all, and seconds a token."""

    prefill: int
    decode: int
    output_rate: float
    token_time: float


def groups(
    speed: Speed,
    engines: int,
    concurrency: float,
    input_tokens: int,
    output_tokens: int,
    most_running: float,
) -> Groups | None:
    """Return the best division of alike engines, None for fewer than two.

    The group that is slower decides. What moving the cache between them takes is not counted: for
    a prompt it is its cache over the network once, beside which the next one is prefilled.
    """
    best: Groups | None = None
    for prefill in range(1, engines):
        decode = engines - prefill
        each = speed.at(
            max(1.0, concurrency / decode), input_tokens, output_tokens, most_running, True
        )
        prompts = prefill * each.prefill_rate / input_tokens
        # An engine without a request delivers nothing.
        replies = min(decode, concurrency) * each.output_rate.middle / output_tokens
        found = Groups(
            prefill, decode, min(prompts, replies) * output_tokens, each.token_time.middle
        )
        if best is None or found.output_rate > best.output_rate:
            best = found
    return best
