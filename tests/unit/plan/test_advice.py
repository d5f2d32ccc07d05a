"""Layouts that the planner chooses inside the stage, where models and devices are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.picture import of_plan
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SMALL = {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
SMALL |= {"num_attention_heads": 32}


def model(values: Mapping[str, Any]) -> Model:
    return understand(Settings(values, "config.json"), "org/model")


def hosts(*counts: int, kind: str | None = "H100-80") -> list[Capacity]:
    device = accelerator(kind) if kind else None
    return [
        Capacity.whole(f"n{number}", "nvidia", count, device)
        for number, count in enumerate(counts, 1)
    ]


def plan(
    engines: list[dict[str, Any]],
    capacities: list[Capacity],
    kept: Plan | None = None,
    **models: Mapping[str, Any],
) -> Plan:
    wanted = parse_engines([{"model": "org/model", **engine} for engine in engines])
    known = {name: model(values) for name, values in models.items()}
    return make_plan("c", wanted, capacities, kept, terms=Terms(known))


def only(made: Plan, name: str = "a") -> PlannedEngine:
    engine = made.engine(name)
    assert engine is not None
    return engine


def test_a_large_model_gets_the_devices_it_needs_on_one_host() -> None:
    engine = only(plan([{"name": "a"}], hosts(8), a=LLAMA))
    assert engine.layout.tensor >= 4
    assert engine.hosts == ("n1",)
    assert "layout auto" in engine.reasons[0]
    assert any(reason.startswith("not TP") for reason in engine.reasons)


def test_a_model_larger_than_a_host_is_laid_over_several_by_stages() -> None:
    engine = only(
        plan([{"name": "a"}], hosts(2, 2, kind="A100-40"), a=LLAMA | {"num_hidden_layers": 70})
    )
    assert engine.layout == Layout(2, 2)
    assert len(engine.hosts) == 2


def test_a_measured_network_replaces_the_usual_one() -> None:
    layout = {"tensor": 16, "pipeline": 1}
    wanted = parse_engines([{"name": "a", "model": "org/model", "layout": layout, "nodes": 2}])
    known = {"a": model(LLAMA)}
    usual = make_plan("c", wanted, hosts(8, 8), terms=Terms(known)).engine("a")
    slow = make_plan("c", wanted, hosts(8, 8), terms=Terms(known, measured=2e9)).engine("a")
    assert usual
    assert slow
    speed = [one.estimate["output_tokens_per_second"][1] for one in (usual, slow)]
    assert speed[1] < 0.8 * speed[0]


def test_an_unknown_device_or_model_keeps_to_one_rank() -> None:
    assert only(plan([{"name": "a"}], hosts(8, kind=None), a=LLAMA)).layout == Layout(1, 1)
    assert only(plan([{"name": "a"}], hosts(8))).layout == Layout(1, 1)


def test_a_processor_is_never_planned_for() -> None:
    made = plan([{"name": "a"}], [Capacity.whole("n1", "cpu", 4)], a=SMALL)
    assert only(made).layout == Layout(1, 1)
    assert only(made).estimate == {}


def test_engines_share_devices_by_their_weights() -> None:
    made = plan([{"name": "a"}, {"name": "b"}], hosts(8), a=LLAMA, b=SMALL)
    large, small = only(made), only(made, "b")
    assert large.layout.world_size + small.layout.world_size <= 8
    assert large.estimate["kv_tokens"][0] > 0
    assert not set(large.devices("n1")) & set(small.devices("n1"))


def test_an_engine_with_its_own_layout_keeps_its_devices_free() -> None:
    made = plan([{"name": "a"}, {"name": "b", "layout": {"tensor": 4}}], hosts(8), a=LLAMA, b=SMALL)
    assert only(made, "b").layout == Layout(4, 1)
    assert only(made).layout.world_size <= 4


def test_a_chosen_layout_gets_a_context_that_its_cache_holds() -> None:
    engine = only(plan([{"name": "a"}], hosts(2), a=LLAMA))
    assert "--max-model-len" in engine.arguments
    told = int(engine.arguments[engine.arguments.index("--max-model-len") + 1])
    assert 0 < told <= engine.estimate["kv_tokens"][1]
    given = plan([{"name": "a", "vllm_args": {"max_model_len": 4096}}], hosts(2), a=LLAMA)
    assert only(given).arguments == ("--max-model-len", "4096")


def test_an_asked_layout_is_kept_and_estimated() -> None:
    fits = only(plan([{"name": "a", "layout": {"tensor": 2}}], hosts(8), a=SMALL))
    assert fits.layout == Layout(2, 1)
    assert fits.estimate["stages"][0]["weights_bytes"] > 0
    assert (fits.estimate["input_tokens"], fits.estimate["output_tokens"]) == (1024, 512)


def test_the_estimate_is_kept_and_changes_nothing() -> None:
    made = plan([{"name": "a"}], hosts(8), a=LLAMA)
    again = Plan.from_dict(made.to_dict())
    assert again == Plan.from_dict(again.to_dict())
    assert again.digest == made.digest
    assert only(again).estimate == only(made).estimate
    bare = made.to_dict()
    del bare["engines"][0]["estimate"]
    assert Plan.from_dict(bare).digest == made.digest


def test_a_running_engine_stays_where_it_is() -> None:
    kept = plan([{"name": "a"}], hosts(4, 4), a=LLAMA)
    later = plan([{"name": "a"}], hosts(8, 8), kept, a=LLAMA)
    assert only(later) == only(kept)


@pytest.mark.parametrize("length", [0, "long"])
def test_arguments_that_make_no_sense_are_left_to_the_engine(length: Any) -> None:
    made = plan([{"name": "a", "vllm_args": {"max_model_len": length}}], hosts(8), a=LLAMA)
    assert only(made).layout.world_size >= 1


def test_the_picture_of_a_kept_plan_shows_each_rank() -> None:
    made = plan([{"name": "a"}], hosts(8), a=LLAMA).to_dict()
    page = of_plan(made["engines"])
    assert page.count("<title>rank") == len(made["engines"][0]["ranks"])
    assert of_plan([{**made["engines"][0], "estimate": {}}]) == ""


EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


def test_a_layout_with_data_is_estimated_with_experts_spread_over_its_ranks() -> None:
    """Attention is repeated on every data rank, experts are not: what a rank holds says so."""
    engines = [{"name": "a", "layout": {"data": 4, "tensor": 4}}]
    engine = only(plan(engines, hosts(8, 8), a=EXPERTS))
    assert engine.layout == Layout(4, 1, 4)
    assert "GiB of weights a rank" in engine.reasons[0]
    wide = engine.estimate["stages"][0]["weights_bytes"]
    plain = only(plan([{"name": "a", "layout": {"tensor": 16}}], hosts(8, 8), a=EXPERTS))
    assert wide > plain.estimate["stages"][0]["weights_bytes"]
    with pytest.raises(PlanError, match="engine a with layout DP2 TP1 cannot run"):
        plan([{"name": "a", "layout": {"data": 2}}], hosts(8, 8), a=EXPERTS)


def test_data_ranks_of_a_known_mixture_may_be_left_to_the_planner() -> None:
    engine = only(plan([{"name": "a", "executor": "dp"}], hosts(8, 8), a=EXPERTS))
    assert engine.layout.data > 1
    assert engine.layout.pipeline == 1
    assert len(engine.servers()) == engine.layout.data
    assert f"DP{engine.layout.data} EP{engine.layout.world_size}" in engine.reasons[0]
    dense = only(plan([{"name": "a", "executor": "dp"}], hosts(8, 8), a=LLAMA))
    assert dense.layout.data > 1
    with pytest.raises(PlanError, match="their number is not given"):
        plan([{"name": "a", "executor": "dp"}], hosts(1), a=LLAMA)


def test_hosts_that_differ_are_named_with_the_question_that_lists_engines_for_all() -> None:
    """One engine over 2x8 H200 leaves 1x8 H100 without one, and said nothing of it.

    An executor is of one engine; without it the entry becomes an engine for each kind.
    """
    mixed = [*hosts(8, 8, kind="H200"), Capacity.whole("n3", "nvidia", 8, accelerator("H100-80"))]
    engine = only(plan([{"name": "a", "executor": "ray"}], mixed, a=LLAMA))
    assert len(plan([{"name": "a"}], mixed, a=LLAMA).engines) == 2
    assert "n3" not in engine.hosts
    (said,) = (one for one in engine.reasons if "lists engines" in one)
    assert "n3 is not" in said
    assert 'vllm-ansible plan org/model "2x8 H200 + 1x8 H100-80"' in said
    alike = only(plan([{"name": "a", "executor": "ray"}], hosts(8, 8, kind="H200"), a=LLAMA))
    assert not any("lists engines" in one for one in alike.reasons)


CONFIGS = Path(__file__).parents[2] / "data/public/configs"


@pytest.mark.parametrize(
    ("layout", "arguments", "kind", "said"),
    (
        ({"data": 2, "tensor": 1}, {}, "H200", True),
        ({"tensor": 2, "pipeline": 1}, {"enable_expert_parallel": True}, "H100-80", True),
        ({"data": 2, "tensor": 1}, {"moe_backend": "triton"}, "H200", False),
        ({"data": 2, "tensor": 1}, {"kernel_config": {"moe_backend": "triton"}}, "H200", False),
        ({"tensor": 2, "pipeline": 1}, {}, "H200", False),
        ({"tensor": 1, "pipeline": 1}, {"enable_expert_parallel": True}, "H200", False),
        ({"data": 2, "tensor": 1}, {}, "B200", False),
    ),
)
def test_experts_that_compile_for_minutes_are_warned_of(
    layout: dict[str, int], arguments: dict[str, Any], kind: str, said: bool
) -> None:
    """Four layers of DeepSeek-R1 had compiled a quarter of the files after 331 s on two H200."""
    found = json.loads((CONFIGS / "deepseek-ai--DeepSeek-R1_config.json").read_text("utf-8"))
    latent = {**found, "num_hidden_layers": 4, "first_k_dense_replace": 1}
    one = {"name": "a", "layout": layout, "vllm_args": arguments}
    told = [line for line in plan([one], hosts(2, kind=kind), a=latent).warnings if "FP8" in line]
    assert [f"kernels on {kind.partition('-')[0]}" in line for line in told] == [True] * said
    assert all("moe_backend: triton" in line for line in told)


def test_experts_in_bfloat16_compile_nothing_of_flashinfers() -> None:
    found = json.loads((CONFIGS / "Qwen--Qwen3-30B-A3B_config.json").read_text("utf-8"))
    one = {"name": "a", "layout": {"data": 2, "tensor": 1}}
    assert not [line for line in plan([one], hosts(2), a=found).warnings if "FP8" in line]
