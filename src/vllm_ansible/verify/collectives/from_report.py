"""Turn what a test printed into a measurement, or say why it is none."""

from __future__ import annotations

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.verify.collectives.report import Report
from vllm_ansible.verify.collectives.verdict import DEFAULT, Measured


def measured_from(
    report: Report,
    operation: str,
    ranks: int,
    nodes: int,
    library: str = "nccl",
    algorithm: str = DEFAULT,
    over_tcp: bool = False,
) -> Measured:
    """Return the measurement of a run that was to be this operation over so many ranks and nodes.

    Raises PlanError for a run that stopped before its end, of another operation, or over other
    ranks than were started, as of a build without MPI.
    """
    if report.operation not in (None, operation):
        raise _refused(
            "is of another operation", operation, str(report.operation), "read the right output"
        )
    if report.ranks not in (None, ranks):
        raise _refused(
            f"ran over {report.ranks} ranks",
            f"{ranks} ranks",
            "; ".join(report.said) or f"{report.ranks} ranks",
            "build the test with MPI=1, and start it with the launcher of that MPI",
        )
    if not report.complete:
        raise _refused(
            "did not end",
            "its summary: Out of bounds values, Avg bus bandwidth",
            "; ".join(report.said),
            "run the command by hand on those hosts and read its first error",
        )
    return Measured(
        operation, report.curve, ranks, nodes, library, algorithm, over_tcp, report.wrong
    )


def _refused(what: str, expected: str, found: str, fix: str) -> PlanError:
    return PlanError(Problem(f"the test {what}", expected=expected, found=found, fix=fix))
