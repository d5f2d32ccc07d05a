"""What the seconds of a collective say about links: algorithm and bus bandwidth, GB = 1e9 bytes.

Bytes are always nccl-tests' `size`: the larger of what a rank sends and receives. For all_gather
that is the whole output, for reduce_scatter the whole input, for all_to_all all parts of one rank.
"""

from __future__ import annotations

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem

GB = 1e9
SAME, SHARE, TWICE = "same", "share", "twice"
# https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
KINDS = {
    "all_reduce": TWICE,
    "all_gather": SHARE,
    "reduce_scatter": SHARE,
    "all_to_all": SHARE,
    "broadcast": SAME,
    "reduce": SAME,
    "send_recv": SAME,
}


@frozen
class Bandwidth:
    """GB/s of one operation: bytes over seconds, and what a link of each rank carried."""

    algbw: float
    busbw: float


def factor(operation: str, ranks: int) -> float:
    """Return bus over algorithm bandwidth; PlanError for an unknown operation or under 2 ranks."""
    if operation not in KINDS:
        raise PlanError(
            Problem(
                f"operation {operation!r} has no bus bandwidth",
                expected=f"one of {', '.join(KINDS)}",
                found=operation,
                fix=f"use one of {', '.join(KINDS)}",
            )
        )
    if ranks < 2:
        raise PlanError(
            Problem(
                f"{operation} over {ranks} rank moves nothing between ranks",
                expected="at least 2 ranks",
                found=str(ranks),
                fix="start the test over 2 ranks or more",
            )
        )
    if KINDS[operation] == SAME:
        return 1.0
    return (2 if KINDS[operation] == TWICE else 1) * (ranks - 1) / ranks


def bandwidth(operation: str, size: int, seconds: float, ranks: int) -> Bandwidth:
    """Return the rates of one operation over `size` bytes; PlanError where there is none."""
    share = factor(operation, ranks)
    if seconds <= 0 or size < 0:
        raise PlanError(
            Problem(
                f"{operation} of {size} bytes in {seconds} s has no bandwidth",
                expected="a time above 0 and a size of 0 or more",
                found=f"{size} bytes, {seconds} s",
                fix="measure again with more repeats",
            )
        )
    rate = size / seconds / GB
    return Bandwidth(rate, rate * share)
