"""Read Enflame's eccl_*_perf, whose output nobody has published.

Its programs take the arguments of nccl-tests (-b -e -f) under the same names, so the same table is
assumed, found by its header; another one is refused, never guessed at.
"""

from __future__ import annotations

from vllm_ansible.verify.collectives import text_output
from vllm_ansible.verify.collectives.report import Report

FAMILY = "eccl"
FORMAT = "emulated: the format is assumed to be nccl-tests'"


def parse(text: str, program: str | None = None) -> Report:
    """Return what eccl_*_perf printed; UnreadableOutput for another table or none.

    program: `eccl_all_reduce_perf`, as it is not known to print its name.
    """
    return text_output.parse(text, program, FAMILY)
