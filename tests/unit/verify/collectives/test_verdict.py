"""Pass, warn, fail and baseline, each with its reading."""

from __future__ import annotations

import json
import random

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.problem import PlanError
from vllm_ansible.verify.collectives.expected import (
    NodeLinks,
    across_nodes,
    inside_node,
    over_tcp,
)
from vllm_ansible.verify.collectives.transport import transport
from vllm_ansible.verify.collectives.transport_verdict import (
    ExpectedTransport,
    inside_ways,
    problems,
)
from vllm_ansible.verify.collectives.verdict import (
    CONGESTION,
    NO_LINK,
    NOISE,
    ONE_BAD_NODE,
    Measured,
    judge,
)

GIB = 1 << 30
H200 = accelerator("H200")
RING = across_nodes([NodeLinks(H200, 8, 400.0)] * 4)


def measured(busbw: float, **other) -> Measured:
    """Return an all-reduce of 1 GiB over four nodes."""
    given = {"ranks": 32, "nodes": 4, "library": "nccl", "operation": "all_reduce", **other}
    return Measured(curve=given.pop("curve", {GIB: busbw}), **given)


def gloo(busbw: float, **other) -> Measured:
    """Return an all-reduce of 32 MiB over TCP."""
    return measured(busbw, library="gloo", over_tcp=True, curve={2**25: busbw}, ranks=8, **other)


def kept_run(kept, name: str) -> Measured:
    """Return a measurement of four H200."""
    document = json.loads(kept(f"h200-{name}.json"))
    rows = [row for row in document["rows"] if row["operation"] == "all_reduce"]
    return Measured(
        "all_reduce",
        {row["bytes"]: row["busbw"] for row in rows},
        document["ranks"],
        1,
        "nccl",
        "ring" if name == "ring" else "default",
        wrong=sum(row["wrong"] for row in rows),
    )


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [(366, "pass"), (330, "pass"), (329, "warn"), (293, "warn"), (292, "fail")],
)
def test_the_ring_rule_passes_warns_and_fails(busbw, verdict):
    found = judge(measured(busbw), RING)
    assert (found.verdict, found.expected) == (verdict, 366)
    assert found.threshold == pytest.approx(329.4)


@pytest.mark.parametrize(
    ("curve", "reading"),
    [
        ({GIB: 180.0}, ONE_BAD_NODE),
        ({GIB: 4.0}, NO_LINK),
        ({GIB >> 4: 250.0, GIB >> 2: 300.0, GIB: 150.0}, CONGESTION),
        ({GIB: 300.0}, NOISE),
    ],
)
def test_a_shortfall_is_read_by_its_size(curve, reading):
    assert judge(measured(0, curve=curve), RING).reading == reading


def test_four_h200_as_measured_pass(kept):
    for name in ("default", "ring"):
        found = judge(kept_run(kept, name), inside_node(H200, 4, False))
        assert found.verdict == "pass"
        assert found.bytes == 4 * GIB


def test_four_h200_without_p2p_fail_by_rate_and_by_transport(kept):
    run = kept_run(kept, "shm")
    by_rate = judge(run, inside_node(H200, 4, False))
    assert (by_rate.verdict, by_rate.reading) == ("fail", NO_LINK)
    wrong = problems(
        transport(kept("h200-shm.log").splitlines()),
        ExpectedTransport("socket", None, inside_ways(H200)),
    )
    assert judge(run, None, 25.0, wrong).verdict == "fail"
    assert "SHM/direct" in judge(run, None, 25.0, wrong).sentence()
    assert judge(run, inside_node(H200, 4, False), problems=wrong).reading == ""


def test_a_wrong_transport_fails_a_run_that_is_fast_enough(kept):
    wrong = problems(transport(kept("h200-sockets.log").splitlines()), ExpectedTransport("roce"))
    found = judge(measured(366), RING, problems=wrong)
    assert found.verdict == "fail"
    assert found.problems[0].fix


def test_wrong_results_fail_a_fast_run_and_are_no_baseline():
    assert judge(measured(366, wrong=1), RING).verdict == "fail"
    found = judge(measured(366, wrong=1))
    assert found.verdict == "fail"
    assert "1 results of all_reduce were wrong" in found.sentence()


def test_nothing_known_is_a_baseline_to_keep():
    found = judge(measured(20, library="eccl"))
    assert (found.verdict, found.expected, found.threshold) == ("baseline", None, None)
    assert "no figure is known" in found.sentence()


@pytest.mark.parametrize(("busbw", "verdict"), [(18.1, "pass"), (17.9, "fail"), (21.9, "pass")])
def test_a_kept_run_of_accelerators_is_compared_at_a_tenth(busbw, verdict):
    assert judge(measured(busbw, library="eccl"), baseline=20.0).verdict == verdict


def test_a_run_much_faster_than_the_kept_one_says_so():
    assert "keep this one" in judge(measured(23, library="eccl"), baseline=20.0).reading
    assert judge(measured(21, library="eccl"), baseline=20.0).reading == ""


@pytest.mark.parametrize(("share", "verdict"), [(0.82, "pass"), (0.75, "warn"), (0.5, "fail")])
def test_a_kept_run_over_tcp_is_compared_more_widely(share, verdict):
    assert judge(gloo(0.1 * share), baseline=0.1).verdict == verdict
    assert judge(gloo(0.1175 * share), over_tcp(0.125)).verdict == verdict


def test_noise_of_a_fifth_over_tcp_is_no_failure_and_half_a_link_always_is():
    draw = random.Random(4)  # noqa: S311 it draws noise, not secrets
    for _ in range(500):
        noise = draw.uniform(0.8, 1.0)
        assert judge(gloo(0.1 * noise), baseline=0.1).verdict != "fail"
        assert judge(gloo(0.05 * noise), baseline=0.1).verdict == "fail"


@pytest.mark.parametrize(
    ("run", "word"),
    [
        (measured(300, curve={GIB // 2: 300.0}), "1073741824"),
        (gloo(0.1, operation="all_to_all"), "baseline"),
        (measured(300, library="mpi"), "nccl"),
    ],
)
def test_what_cannot_be_judged_is_refused(run, word):
    with pytest.raises(PlanError) as error:
        judge(run, over_tcp(0.125) if run.over_tcp else RING)
    assert word in error.value.problems[0].expected


def test_two_nodes_by_nccls_own_choice_are_refused_and_by_ring_judged():
    expected = across_nodes([NodeLinks(H200, 8, 400.0)] * 2)
    with pytest.raises(PlanError, match="NCCL_ALGO=RING"):
        judge(measured(470, nodes=2, ranks=16), expected)
    assert judge(measured(360, nodes=2, ranks=16, algorithm="ring"), expected).verdict == "pass"


def test_an_empty_curve_is_refused():
    with pytest.raises(PlanError, match="too few"):
        judge(measured(0, curve={}), RING)
