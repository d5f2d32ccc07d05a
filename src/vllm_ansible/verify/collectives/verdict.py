"""Pass, warn, fail or baseline: one measured bandwidth against what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_ansible.frozen import frozen
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.verify.collectives.expected import Expectation, figures

PASS, WARN, FAIL, BASELINE = "pass", "warn", "fail", "baseline"
LIBRARIES = ("nccl", "eccl", "gloo")
RING, DEFAULT = "ring", "default"
ONE_BAD_NODE = "about half of the expected: one bad node, or half of its cards"
NO_LINK = "near zero: a link that is down, or a wrong partition key"
CONGESTION = "only large sizes are slow: congestion, or a card that throttles"
SLOW = "slower than it should be at every size"
NOISE = "runs on the same machines differ by up to 20 % through noise and heat: measure again"


@frozen
class Measured:
    """One operation over one group. `curve` holds GB/s of bus bandwidth by bytes.

    `algorithm` is ring where NCCL_ALGO=RING was set. `over_tcp` tells that bytes went through
    sockets. `wrong` is how many results were wrong, None where they were not checked.
    """

    operation: str
    curve: Mapping[int, float]
    ranks: int
    nodes: int
    library: str
    algorithm: str = DEFAULT
    over_tcp: bool = False
    wrong: int | None = None


@frozen
class Verdict:
    """One judgement; rates in GB/s. `threshold` is the rate under which it would not pass."""

    verdict: str
    found: float
    bytes: int
    expected: float | None
    threshold: float | None
    source: str
    reading: str
    problems: tuple[Problem, ...] = ()

    def sentence(self) -> str:
        """Return the judgement in one line."""
        beside = "no figure is known" if self.expected is None else f"expected {self.expected:.4g}"
        why = f": {self.reading}" if self.reading else ""
        wrong = "".join(f" {problem.sentence()}" for problem in self.problems)
        return f"{self.verdict}: {self.found:.4g} GB/s at {self.bytes} bytes, {beside}{why}.{wrong}"


def judge(
    measured: Measured,
    expectation: Expectation | None = None,
    baseline: float | None = None,
    problems: Sequence[Problem] = (),
) -> Verdict:
    """Return whether a measurement is good enough.

    expectation: of all_reduce, the only operation with published figures; it wins over baseline,
    the GB/s of the first accepted run. With neither, the verdict is `baseline`: keep this run, once
    nothing else is wrong with it. problems: of the transport; any is a failure.
    Raises PlanError for a measurement that cannot be judged.
    """
    size = _size(measured)
    found = measured.curve[size]
    wrong = (*_wrong(measured), *problems)
    if expectation is not None:
        _judgeable(measured, expectation)
        level, most = expectation, None
    elif baseline is not None:
        level = _kept(baseline, measured.over_tcp)
        most = baseline * baseline / level.fail_below
    else:
        told = "the first run: nothing is published for these machines"
        return Verdict(FAIL if wrong else BASELINE, found, size, None, None, told, "", wrong)
    verdict = FAIL if wrong or found < level.fail_below else PASS
    reading = ""
    if found < level.warn_below:
        verdict = FAIL if verdict == FAIL else WARN
        if not wrong:  # what is known to be wrong explains more than a size does
            reading = reading_of(measured.curve, level.busbw, found < level.fail_below)
    elif most is not None and found > most:
        reading = "faster than the kept run: keep this one instead"
    return Verdict(
        verdict, found, size, level.busbw, level.warn_below, level.source, reading, wrong
    )


def reading_of(curve: Mapping[int, float], expected: float, failed: bool = True) -> str:
    """Return what a shortfall usually means, by how much it is and at which sizes."""
    largest = max(curve)
    share = curve[largest] / expected
    if max(curve.values()) * 0.8 > curve[largest]:
        return CONGESTION
    if share < 0.1:
        return NO_LINK
    if 0.4 <= share <= 0.6:
        return ONE_BAD_NODE
    return SLOW if failed else NOISE


def _size(measured: Measured) -> int:
    """Return the largest size, or refuse one that says nothing of bandwidth."""
    sizes = figures()["least_bytes"]
    least = sizes["tcp" if measured.over_tcp else "accelerators"]
    largest = max(measured.curve, default=0)
    if measured.library not in LIBRARIES:
        raise PlanError(
            Problem(
                f"library {measured.library!r} is not known",
                expected=f"one of {', '.join(LIBRARIES)}",
                found=measured.library,
                fix=f"use one of {', '.join(LIBRARIES)}",
            )
        )
    if largest < least:
        raise PlanError(
            Problem(
                f"{measured.operation} was measured at {largest} bytes, too few for its bandwidth",
                expected=f"{least} bytes or more",
                found=f"{largest} bytes",
                fix=f"measure with -b {least} -e {least}",
            )
        )
    return largest


def _judgeable(measured: Measured, expectation: Expectation) -> None:
    """Refuse to hold another operation, or a tree over two nodes, against a ring's all-reduce."""
    if measured.operation != "all_reduce":
        raise PlanError(
            Problem(
                f"no figure is known for {measured.operation}",
                expected="all_reduce, or a baseline of the same operation",
                found=measured.operation,
                fix="judge all_reduce, or give the bandwidth of the first accepted run",
            )
        )
    if expectation.ring_only and measured.library == "nccl" and measured.algorithm != RING:
        raise PlanError(
            Problem(
                "two nodes cannot be judged by the algorithm that NCCL chooses for them",
                expected="NCCL_ALGO=RING",
                found=f"algorithm {measured.algorithm}, {max(measured.curve.values()):.4g} GB/s",
                fix="measure once more with NCCL_ALGO=RING, and report this figure beside it",
            )
        )


def _kept(baseline: float, over_tcp: bool) -> Expectation:
    """Return what a kept run asks of a later one."""
    shares = figures()["thresholds"]["tcp" if over_tcp else "baseline"]
    source = f"the first accepted run ({shares['why']})"
    return Expectation(baseline, baseline * shares["fail"], baseline * shares["warn"], source)


def _wrong(measured: Measured) -> list[Problem]:
    if not measured.wrong:
        return []
    return [
        Problem(
            f"{measured.wrong} results of {measured.operation} were wrong",
            expected="0 out of bounds",
            found=str(measured.wrong),
            fix="do not serve on these machines: look for Xid and ECC errors, and repeat the test "
            "with half of them until the bad one is found",
        )
    ]
