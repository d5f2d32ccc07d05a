"""Layouts that cannot run, engines of which nothing is known, and devices that would stay idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

from .estimate.layouts.conftest import LLAMA_8B as LLAMA
from .estimate.layouts.conftest import R1 as PLAIN_R1

R1 = {
    **PLAIN_R1,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}


def hosts(*counts: int, kind: str = "H100-80") -> list[Capacity]:
    return [
        Capacity.whole(f"n{number}", "nvidia", count, accelerator(kind))
        for number, count in enumerate(counts, 1)
    ]


def plan(
    capacities: list[Capacity],
    config: Mapping[str, Any] | None,
    *more: dict[str, Any],
    allow_unfit: bool = False,
    settled: bool = True,
    kept: Plan | None = None,
    **engine: Any,
) -> Plan:
    engines = parse_engines([{"name": "a", "model": "org/model", **engine}, *more])
    names = [one.name for one in engines]
    models = {}
    if config is not None:
        models = dict.fromkeys(names, understand(Settings(config, "config.json"), "org/model"))
    unread = {} if models else dict.fromkeys(names, "no way to the hub")
    terms = Terms(models, unread, settled=settled, allow_unfit=allow_unfit)
    return make_plan("c", engines, capacities, kept, terms=terms)


def only(made: Plan) -> PlannedEngine:
    (engine,) = made.engines
    return engine


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        pytest.param(
            {"layout": {"tensor": 8}},
            "TP8 PP1 cannot run on 2x8 H100-80: a rank has no room for a KV cache: weights 79.6",
            id="no room",
        ),
        pytest.param(
            {"layout": {"tensor": 8, "pipeline": 2}, "vllm_args": {"gpu_memory_utilization": 0.4}},
            "of 31.7 GiB",
            id="share of memory",
        ),
        pytest.param({"vllm_args": {"gpu_memory_utilization": 0.4}}, "no layout is expected to run",
                     id="share of memory and auto"),
        pytest.param(
            {"layout": {"tensor": 8, "pipeline": 2}, "vllm_args": {"cpu_offload_gb": 10}},
            r"10 GiB of weights in host memory fail with latent attention \(MLA\)",
            id="offload",
        ),
        pytest.param(
            {"vllm_args": {"max-model-len": 5_000_000}},
            "asks for max_model_len 5,000,000, and org/model has 163,840",
            id="length",
        ),
        pytest.param(
            {"layout": {"tensor": 11}}, "TP11 does not divide over nodes of 8 devices", id="shape"
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_the_planners_numbers(
    engine: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words) as refused:
        plan(hosts(8, 8), R1, **engine)
    (problem,) = refused.value.problems
    assert problem.expected and problem.found and problem.where and problem.fix


def test_the_refusal_names_a_layout_that_runs() -> None:
    with pytest.raises(PlanError) as refused:
        plan(hosts(8, 8), R1, layout={"tensor": 8})
    assert "write layout: {data: 2, tensor: 8} or auto" in refused.value.problems[0].fix
    plan(hosts(8, 8), R1, layout={"data": 2, "tensor": 8})
    assert only(plan(hosts(8, 8), R1, layout={"tensor": 8, "pipeline": 2})).layout == Layout(8, 2)


def test_what_cannot_run_may_be_tried_all_the_same() -> None:
    made = plan(hosts(8, 8), R1, layout={"tensor": 8}, allow_unfit=True)
    assert only(made).layout == Layout(8, 1)
    (warning,) = made.warnings
    assert warning.startswith("engine a with TP8 PP1: the planner expects that it does not run: ")


def test_what_lies_within_the_band_is_a_warning() -> None:
    """Weights of 15.0 GiB and 2.9 (1.3 to 7.4) beside them meet 17.4 GiB."""
    share = {"gpu_memory_utilization": 0.22, "max_model_len": 4096}
    made = plan(hosts(1), LLAMA, layout={"tensor": 1}, vllm_args=share)
    assert "expects that it does not run" in made.warnings[0]


def test_an_engine_that_runs_is_not_judged_again() -> None:
    kept = plan(hosts(8, 8), R1, layout={"tensor": 8}, allow_unfit=True)
    later = plan(hosts(8, 8), R1, layout={"tensor": 8}, kept=kept)
    assert (later.engines, later.warnings) == (kept.engines, ())


def test_a_length_that_scaled_positions_allow_is_no_refusal() -> None:
    scaled = {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    long = {"max_model_len": 300_000}
    assert only(plan(hosts(8), scaled, vllm_args=long)).estimate
    with pytest.raises(PlanError, match="asks for max_model_len 300,000"):
        plan(hosts(8), LLAMA, vllm_args=long)
    allowed = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": 1}
    assert only(plan(hosts(8), LLAMA, vllm_args=long, environment=allowed)).estimate


def test_a_layout_that_is_far_slower_than_another_is_a_warning() -> None:
    eager = {"enforce_eager": True}
    made = plan(hosts(4, 4, 4, 4), R1, layout={"tensor": 16}, vllm_args=eager)
    assert not made.warnings, "nothing else is much faster eagerly"
    slow = plan(hosts(8, 8, kind="H200"), LLAMA, layout={"tensor": 16}, nodes=2)
    (warning,) = slow.warnings
    assert "TP16 PP1 is expected to give" in warning
    assert "on no more devices" in warning


def test_auto_without_a_plan_is_an_error_and_never_one_rank() -> None:
    for capacities, config, why in (
        (hosts(8, 8), None, "its config.json cannot be read: no way to the hub"),
        ([Capacity.whole("n1", "nvidia", 8)], R1, r"the hosts' accelerators \(nvidia\)"),
    ):
        with pytest.raises(PlanError, match="has layout: auto, and nothing can be planned") as no:
            plan(capacities, config)
        with pytest.raises(PlanError, match=why):
            plan(capacities, config)
        assert no.value.problems[0].fix
        early = plan(capacities, config, settled=False)
        assert list(early.unchecked) == ["a"], "what will be known later is said, not refused"
    spread = [Capacity.whole(f"n{one}", "nvidia", 8) for one in (1, 2)]
    with pytest.raises(PlanError, match="nothing can be planned"):
        plan(spread, None, nodes=2)
    given = plan(spread, None, layout={"tensor": 4})
    assert "no way to the hub" in given.unchecked["a"] or given.unchecked
    assert only(plan([Capacity.whole("n1", "cpu", 2)], None)).layout == Layout(1, 1)


@pytest.mark.parametrize(
    ("counts", "kind", "layout"),
    [
        # One engine takes 12 of 16 devices.
        ((4, 4, 4, 4), "H100-80", Layout(4, 1, 4)),
        # One engine takes a host, and the other one idles.
        ((8, 8), "H200", Layout(8, 1, 2)),
        # Two stages would take all of them, too, and are planned 21 % slower.
        ((8, 8), "H100-80", Layout(8, 1, 2)),
    ],
)
def test_auto_leaves_no_device_idle_that_data_ranks_would_use(
    counts: tuple[int, ...], kind: str, layout: Layout
) -> None:
    engine = only(plan(hosts(*counts, kind=kind), R1))
    assert engine.layout == layout
    assert len(engine.ranks) == sum(counts)
    assert engine.executor == ("dp" if layout.data > 1 else "ray")


def test_replicas_of_a_dense_model_use_what_one_engine_leaves() -> None:
    engine = only(plan(hosts(8, 8, kind="H200"), LLAMA))
    assert engine.layout.data > 1
    assert len(engine.ranks) == 16
    assert engine.estimate["concurrency"] == pytest.approx(64)
    one = only(plan(hosts(8, 8, kind="H200"), LLAMA, executor="mp"))
    assert one.layout.data == 1
    rates = [it.estimate["output_tokens_per_second"][1] for it in (engine, one)]
    assert rates[0] > rates[1] / 0.85


def test_replicas_come_before_a_pipeline_that_is_no_faster() -> None:
    """On two H100 a pipeline of this model gave 6,713 tokens/s, where 18,201 were planned."""
    small = CONFIGS["smollm2-135m-instruct"]
    engine = only(plan(hosts(2, kind="H100-80"), small))
    assert engine.layout == Layout(1, 1, 2)
    # A pipeline is planned slower than one device today: with stages the host is waited for.
    assert only(plan(hosts(2, kind="H100-80"), small, executor="ray")).layout == Layout(1, 1)


def test_an_executor_that_was_asked_for_is_kept() -> None:
    capacities = hosts(4, 4, 4, 4)
    free = plan(capacities, R1)
    assert only(free).executor == "dp"
    assert only(plan(capacities, R1, kept=free)) == only(free)
    asked = only(plan(capacities, R1, kept=free, executor="ray"))
    assert (asked.executor, asked.layout.data) == ("ray", 1)


def test_engines_that_share_hosts_are_planned_as_one_engine_each() -> None:
    made = plan(hosts(8, 8), LLAMA, {"name": "b", "model": "org/model"})
    assert [engine.layout.data for engine in made.engines] == [1, 1]


def test_a_model_of_random_numbers_fits_before_it_is_made() -> None:
    early = plan(hosts(8), None, settled=False, model="random:llama")
    assert early.unchecked == {}
    with pytest.raises(PlanError, match="nothing can be planned"):
        plan(hosts(8), None, model="random:llama")


def test_of_a_cache_of_a_given_size_nothing_is_expected() -> None:
    given = {"kv_cache_memory_bytes": 1 << 30, "gpu_memory_utilization": 0.1}
    engine = only(plan(hosts(1), LLAMA, layout={"tensor": 1}, vllm_args=given))
    assert engine.estimate["kv_tokens"] == []
    assert engine.estimate["stages"]
