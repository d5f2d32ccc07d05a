"""What an engine's own arguments say of its model: quantized on load, another shape, a length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.inventory.readable import readable
from vllm_ansible.plan.advice import Terms
from vllm_ansible.plan.arguments import human_readable_int, whole_number, with_defaults
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError

from .estimate.layouts.conftest import SHAPES
from .test_advice import LLAMA

GIB = 1 << 30
# Input and output embeddings stay as they are.
EMBEDDINGS = 2 * 128256 * 8192 * 2
LAYER = 8192 * (8192 + 2 * 1024 + 8192) + 3 * 8192 * 28672


@pytest.fixture
def planned(tmp_path: Path) -> Any:
    """Plan one engine whose config.json the controller reads, on one host of H100s."""

    def plan(
        arguments: dict[str, Any],
        layout: Any = "auto",
        config: dict[str, Any] = LLAMA,
        devices: int = 1,
        settled: bool = True,
    ) -> Plan:
        (tmp_path / "config.json").write_text(json.dumps(config))
        engines = parse_engines(
            [{"name": "a", "model": str(tmp_path), "layout": layout, "vllm_args": arguments}]
        )
        there = [Capacity.whole("n1", "nvidia", devices, accelerator("H100-80"))]
        found = readable(engines)
        terms = Terms(found.models, found.unread, settled=settled)
        return make_plan("c", engines, there, terms=terms)

    return plan


def weights(made: Plan) -> float:
    """Return the bytes of weights that are expected on the first rank."""
    return float(made.engines[0].estimate["stages"][0]["weights_bytes"])


@pytest.mark.parametrize(
    ("method", "bits"),
    [
        ("fp8", 8),
        ("fp8_per_tensor", 8),
        ("fp8_per_channel", 8),
        ("fp8_per_block", 8),
        ("mxfp8", 8.25),
        ("mxfp4", 4.25),
        ("bitsandbytes", 4.5),
    ],
)
@pytest.mark.parametrize("layout", [{"tensor": 1}, "auto"])
def test_weights_that_are_quantized_on_load_are_counted_as_they_are_held(
    planned: Any, method: str, bits: float, layout: Any
) -> None:
    given = {"quantization": method, "max_model_len": 4096}
    made = planned(given, layout, {**LLAMA, "num_hidden_layers": 72})
    assert made.engines[0].layout == Layout(1, 1)
    assert weights(made) == pytest.approx(EMBEDDINGS + 72 * LAYER * bits / 8, rel=0.002)
    assert made.unchecked == {}
    assert f"as {method} holds them on load" in made.engines[0].reasons[0]


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes"])
def test_llama_70b_runs_on_one_device_when_it_is_quantized_on_load(
    planned: Any, method: str
) -> None:
    made = planned({"quantization": method, "max_model_len": 4096}, {"tensor": 1})
    assert made.engines[0].estimate and not made.warnings
    with pytest.raises(PlanError, match=r"the weights alone are 131\.4 GiB a rank"):
        planned({"max_model_len": 4096}, {"tensor": 1})


def test_what_does_not_fit_although_it_is_quantized_is_refused(planned: Any) -> None:
    large = {**LLAMA, "num_hidden_layers": 160}
    with pytest.raises(PlanError, match="cannot run on 1x1 H100-80"):
        planned({"quantization": "fp8"}, {"tensor": 1}, large)


def test_a_method_that_quantizes_experts_alone_leaves_linear_layers(planned: Any) -> None:
    config = SHAPES["qwen3-235b"]
    made = [
        planned(given, {"tensor": 8}, config, devices=8)
        for given in ({}, {"quantization": "experts_int8"}, {"quantization": "fp8"})
    ]
    plain, experts, both = map(weights, made)
    assert plain > experts > both > plain / 2


def test_experts_that_stay_whole_are_not_refused_for_their_width(planned: Any) -> None:
    """Over 8 ranks 1536 is 192, no multiple of the FP8 block; whole experts are not cut."""
    config = {
        **SHAPES["qwen3-235b"],
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    with pytest.raises(PlanError, match="no multiple of the FP8 block"):
        planned({}, {"tensor": 8}, config, devices=8)
    made = planned({"enable-expert-parallel": True}, {"tensor": 8}, config, devices=8)
    assert made.engines[0].estimate


@pytest.mark.parametrize("method", ["awq", "modelopt", "my_own"])
def test_a_method_of_unknown_size_is_not_checked(planned: Any, method: str) -> None:
    made = planned({"quantization": method}, {"tensor": 1})
    assert f"quantization {method}" in made.unchecked["a"]
    assert not made.engines[0].estimate
    with pytest.raises(PlanError, match=f"nothing can be planned: .*quantization {method}"):
        planned({"quantization": method})


def test_a_checkpoint_that_is_quantized_says_how_itself(planned: Any) -> None:
    own = {**LLAMA, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    given = planned({"quantization": "fp8"}, {"tensor": 2}, own, 2)
    assert weights(given) == weights(planned({}, {"tensor": 2}, own, 2))
    assert "on load" not in given.engines[0].reasons[0]


@pytest.mark.parametrize(
    "overrides",
    [
        {"hf_overrides": {"num_hidden_layers": 4}},
        {"hf-overrides": '{"num_hidden_layers": 4}'},
        {"hf_overrides.num_hidden_layers": 4},
        {"hf_overrides": "not JSON"},
        {"hf_config_path": "/elsewhere"},
        {"quantization_config": {"linear": "mxfp8"}},
    ],
)
def test_another_shape_than_the_checkpoints_is_not_checked(
    planned: Any, overrides: dict[str, Any]
) -> None:
    made = planned(overrides, {"tensor": 1})
    (name,) = {str(key).partition(".")[0].replace("-", "_") for key in overrides}
    assert name in made.unchecked["a"]
    assert list(planned(overrides, settled=False).unchecked) == ["a"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"hf_overrides": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}},
        {"hf_overrides": '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'},
        {"hf_overrides": {"max_position_embeddings": 65536}},
        {"hf_overrides.rope_theta": 1e6},
        {"hf_overrides": {}},
        {"hf_overrides": None, "quantization": None},
    ],
)
def test_other_positions_change_no_size(planned: Any, overrides: dict[str, Any]) -> None:
    made = planned({**overrides, "max_model_len": 4096}, "auto", devices=8)
    assert made.unchecked == {}
    assert weights(made)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8192", 8192),
        (8192, 8192),
        (" 8k ", 8000),
        ("8K", 8192),
        ("25.6k", 25600),
        ("5m", 5_000_000),
        ("5M", 5 * 2**20),
        ("1g", 10**9),
        ("1T", 2**40),
        ("-1", -1),
        (-1, -1),
        ("auto", -1),
        ("AUTO", -1),
        ("25.6K", None),
        ("8kB", None),
        ("many", None),
        ("", None),
        (True, None),
        (None, None),
        (8192.0, None),
        ([8192], None),
    ],
)
def test_numbers_are_read_as_vllm_reads_them(text: object, number: int | None) -> None:
    assert human_readable_int(text) == number


@pytest.mark.parametrize("length", ["5M", "5m", "5000000", 5_000_000])
@pytest.mark.parametrize("layout", [{"tensor": 8}, "auto"])
def test_a_length_above_the_models_is_refused_however_it_is_written(
    planned: Any, length: Any, layout: Any
) -> None:
    config = {**LLAMA, "rope_scaling": None}
    with pytest.raises(PlanError, match="asks for max_model_len 5,") as refused:
        planned({"max_model_len": length}, layout, config, devices=8)
    assert "has 131,072" in refused.value.problems[0].message


def test_a_length_in_thousands_is_planned_as_that_length(planned: Any) -> None:
    """131,072 tokens take 40 GiB on one rank of two; 8,000 take 2.4."""
    rows = [
        planned({"max_model_len": length}, {"tensor": 2}, devices=2).engines[0].estimate
        for length in ("8k", 8000)
    ]
    assert rows[0] == rows[1]
    (engine,) = planned({"max-model-len": "8k"}, "auto", devices=8).engines
    place = engine.arguments.index("--max-model-len")
    assert engine.arguments[place + 1] == "8k"
    assert engine.arguments.count("--max-model-len") == 1


@pytest.mark.parametrize("length", [-1, "-1", "auto"])
def test_a_length_that_vllm_finds_itself_is_no_length(planned: Any, length: Any) -> None:
    made = planned({"max_model_len": length}, {"tensor": 2}, devices=2)
    assert made.engines[0].estimate and not made.warnings
    assert with_defaults({"max_model_len": length}, "enflame", 2)["max_num_batched_tokens"] == 2048


def test_a_step_on_enflame_holds_a_length_that_is_a_text() -> None:
    wanted = with_defaults({"max-model-len": "16k"}, "enflame", 2)
    assert wanted["max_num_batched_tokens"] == 16000


def test_other_numbers_may_be_texts_too(planned: Any) -> None:
    as_text = {"max_num_seqs": "8", "gpu_memory_utilization": "0.95", "cpu_offload_gb": "0"}
    as_number = {"max_num_seqs": 8, "gpu_memory_utilization": 0.95, "cpu_offload_gb": 0}
    made = [planned(given, {"tensor": 2}, devices=2) for given in (as_text, as_number)]
    assert made[0].engines[0].estimate == made[1].engines[0].estimate
    odd = {"gpu_memory_utilization": "much", "cpu_offload_gb": "some"}
    assert planned(odd, {"tensor": 2}, devices=2).engines


def test_a_command_line_has_numbers_in_thousands() -> None:
    words = ["--max-num-batched-tokens", "8k", "--max-model-len=16K", "--max-num-seqs", "many"]
    names = ("max_num_batched_tokens", "max_model_len", "max_num_seqs", "port")
    assert [whole_number(words, name) for name in names] == [8000, 16384, None, None]
    assert whole_number(["--max-model-len", "-1"], "max_model_len") is None


def test_a_length_beside_overrides_of_positions_is_no_refusal(planned: Any) -> None:
    given = {"hf_overrides.rope_scaling.factor": 4.0, "max_model_len": "200k"}
    assert planned(given, "auto", devices=8).engines[0].estimate


VISION = (
    Path(__file__).parents[2] / "data/public/configs/Qwen--Qwen3-VL-30B-A3B-Instruct_config.json"
)


def test_the_steps_and_the_tower_of_an_engine_are_planned_as_it_asks(planned: Any) -> None:
    config = json.loads(VISION.read_text(encoding="utf-8"))

    def estimate(**arguments: Any) -> dict[str, Any]:
        given = {"max_model_len": 8192, **arguments}
        return dict(planned(given, {"tensor": 2}, config, devices=2).engines[0].estimate)

    usual, text = estimate(), estimate(language_model_only=True)
    whole = estimate(mm_encoder_tp_mode="data")
    sizes = [one["stages"][0]["weights_bytes"] for one in (text, usual, whole)]
    assert sizes == sorted(set(sizes))
    assert estimate(max_num_batched_tokens="2k")["kv_tokens"][1] > usual["kv_tokens"][1]


def test_a_prefix_cache_has_no_memory_of_its_own(planned: Any) -> None:
    """Its pages are the cache's, so that leaving it out makes no room."""
    with_, without = (
        planned({"enable_prefix_caching": wanted}, {"tensor": 4}, devices=4).engines[0].estimate
        for wanted in (True, False)
    )
    assert with_ == without != {}


def test_without_a_prefix_cache_a_recurrent_state_is_kept_once(planned: Any) -> None:
    """A sequence kept two whatever was asked, so that fewer fitted than the engine prints."""
    config = json.loads((VISION.parent / "Qwen--Qwen3.5-35B-A3B_config.json").read_text("utf-8"))

    def tokens(**arguments: Any) -> int:
        given = {"max_model_len": 8192, **arguments}
        found = planned(given, {"tensor": 2}, config, devices=2).engines[0].estimate
        return int(found["kv_tokens"][1])

    usual = tokens()
    assert tokens(enable_prefix_caching=True) == usual
    assert tokens(enable_prefix_caching=False) == tokens(no_enable_prefix_caching=True) > usual


def weights_of(plan: Plan) -> float:
    return float(plan.engines[0].estimate["stages"][-1]["weights_bytes"])


def test_slots_for_adapters_count(planned: Any) -> None:
    """They were left out: the engine had less cache than it was promised."""
    layout = {"tensor": 4}
    plain = planned({}, layout, devices=4)
    slots = planned({"enable_lora": True, "max_loras": 4, "max_lora_rank": 64}, layout, devices=4)
    usual = planned({"enable_lora": True}, layout, devices=4)
    assert weights_of(slots) - weights_of(plain) == pytest.approx(
        16 * (weights_of(usual) - weights_of(plain)), rel=1e-6
    )
    assert weights_of(slots) - weights_of(plain) > GIB


def test_layers_that_propose_tokens_count(planned: Any) -> None:
    config = {**SHAPES["r1"], "num_nextn_predict_layers": 1, "num_hidden_layers": 8}
    told = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
    as_text = {"speculative_config": json.dumps({"method": "deepseek_mtp"})}
    plain = planned({}, {"tensor": 8}, config, 8)
    for arguments in (told, as_text):
        drafting = planned(arguments, {"tensor": 8}, config, 8)
        assert weights_of(drafting) - weights_of(plain) > GIB
        assert not drafting.warnings
    assert weights_of(
        planned({"speculative_config": {"method": "ngram"}}, {"tensor": 8}, config, 8)
    ) == (weights_of(plain))


def test_a_draft_model_of_its_own_is_a_warning(planned: Any) -> None:
    eagle = {"speculative_config": {"method": "eagle3", "model": "org/eagle"}}
    found = planned(eagle, {"tensor": 4}, devices=4)
    assert [one for one in found.warnings if "speculative_config loads" in one]
    assert not planned({}, {"tensor": 4}, devices=4).warnings
