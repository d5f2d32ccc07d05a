"""Only a run that is whole, and of what was asked for, is a measurement."""

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.collectives import nccl_tests
from vllm_ansible.verify.collectives.expected import inside_node
from vllm_ansible.verify.collectives.from_report import measured_from
from vllm_ansible.verify.collectives.verdict import judge


def test_a_whole_run_is_judged(kept):
    report = nccl_tests.parse(kept("formats/2022-all_reduce.txt"))
    measured = measured_from(report, "all_reduce", 4, 1)
    assert judge(measured, inside_node(accelerator("H200"), 4, False)).verdict == "pass"


def test_wrong_results_travel_into_the_verdict(kept):
    report = nccl_tests.parse(kept("formats/2025-all_reduce-wrong.txt"))
    measured = measured_from(report, "all_reduce", 4, 1)
    assert judge(measured, inside_node(accelerator("H200"), 4, False)).verdict == "fail"


def test_a_run_that_was_cut_off_is_none(kept):
    text = kept("formats/2022-all_reduce.txt")
    with pytest.raises(PlanError, match="did not end"):
        measured_from(nccl_tests.parse(text[: text.index("# Out")]), "all_reduce", 4, 1)


def test_a_build_without_mpi_is_none_and_named(kept):
    with pytest.raises(PlanError, match="MPI=1") as error:
        measured_from(nccl_tests.parse(kept("formats/without-mpi.txt")), "all_reduce", 2, 2)
    assert "without MPI" in error.value.problems[0].found


def test_another_operation_is_none(kept):
    report = nccl_tests.parse(kept("formats/version-2.json"))
    with pytest.raises(PlanError, match="another operation"):
        measured_from(report, "all_gather", 4, 1)
