"""What a bandwidth test printed, as rows of numbers: the same for every program and format."""

from __future__ import annotations

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError

PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
}


class UnreadableOutput(PlanError):
    """Nothing in an output can be read; `problems` says what was expected and found."""


@frozen
class Timing:
    """One pass: seconds, GB/s, wrong elements (None: not checked), deviation of old builds."""

    seconds: float
    algbw: float
    busbw: float
    wrong: int | None
    deviation: float | None = None


@frozen
class Row:
    """One size. `bytes` is the larger side; a pass that was not run or not printed is None."""

    bytes: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def busbw(self) -> float:
        """Return the bus bandwidth out of place, which this project judges, else in place."""
        timing = self.out_of_place or self.in_place
        return timing.busbw if timing else 0.0


@frozen
class Report:
    """One run. `complete` is False for output that ends before its summary.

    `said` holds, in sentences, what was left out and why. `out_of_bounds` is the program's own
    count of wrong results. `ranks` is None where the output does not list them all.
    """

    program: str | None
    version: str | None
    ranks: int | None
    rows: tuple[Row, ...]
    out_of_bounds: int | None
    average_busbw: float | None
    complete: bool
    said: tuple[str, ...]

    @property
    def operation(self) -> str | None:
        """Return the operation that the program's name tells, or None."""
        name = (self.program or "").rsplit("/", 1)[-1].removesuffix("_perf")
        return PROGRAMS.get(name.removeprefix("eccl_"))

    @property
    def wrong(self) -> int | None:
        """Return how many results were wrong, None where nothing was checked."""
        if self.out_of_bounds:
            return self.out_of_bounds
        passes = [one for row in self.rows for one in (row.out_of_place, row.in_place) if one]
        counts = [one.wrong for one in passes if one.wrong is not None]
        if counts:
            return sum(counts)
        checked = any(one.deviation is not None for one in passes)
        return self.out_of_bounds if checked else None

    @property
    def curve(self) -> dict[int, float]:
        """Return bus bandwidth by bytes, the last row of a size counting."""
        return {row.bytes: row.busbw for row in self.rows}


def nccl_version(code: int | None) -> str | None:
    """Return NCCL_VERSION_CODE as people write it: 22809 is 2.28.9, and 2804 was 2.8.4."""
    if not code:
        return None
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
