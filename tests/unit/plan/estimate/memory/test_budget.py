"""The budget of a rank: its terms, its defaults and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.memory.budget import budget, default_batch, default_block_size
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.problem import PlanError

Make = Callable[..., Model]
GIB = 2**30


def terms(model: Model, **asked: Any) -> list[str]:
    return [term.name for term in budget(model, Split(1), 80 * GIB, **asked).stages[0].terms]


def test_what_is_left_is_the_cache(make: Make) -> None:
    model = make("llama")
    (one,) = budget(model, Split(1), 80 * GIB, utilization=0.9).stages
    for left, beside in zip(
        (one.kv_bytes.high, one.kv_bytes.mid, one.kv_bytes.low),
        (one.overhead.low, one.overhead.mid, one.overhead.high),
        strict=True,
    ):
        assert left + beside + one.weights == pytest.approx(0.9 * 80 * GIB)


def test_the_share_of_a_device_grew_with_0_20(make: Make) -> None:
    found = [
        budget(make("llama"), Split(1), 80 * GIB, engine_version=version, eager=True).stages[0]
        for version in ("0.19.1", "0.20.0")
    ]
    assert found[1].kv_bytes.low - found[0].kv_bytes.low == pytest.approx(0.02 * 80 * GIB)


def test_graphs_are_counted_from_0_20_and_not_when_eager(make: Make) -> None:
    model = make("llama")
    assert "captured graphs" in terms(model, engine_version="0.20.0")
    assert "captured graphs" not in terms(model, engine_version="0.19.0")
    assert "captured graphs" not in terms(model, engine_version="0.20.0", eager=True)


def test_only_the_last_stage_samples(make: Make) -> None:
    found = budget(make("llama"), Split(1, 2), 80 * GIB).stages
    names = [[term.name for term in one.terms] for one in found]
    assert "sampler" not in names[0] and "sampler" in names[1]


def test_a_cpu_has_no_overhead_of_its_own(make: Make) -> None:
    found = budget(make("llama"), Split(1), 8 * GIB, accelerator_kind="cpu").stages[0]
    assert found.overhead.high == 0 and found.terms == ()


def test_stages_may_have_devices_of_different_memory(make: Make) -> None:
    found = budget(make("llama"), Split(1, 2), (16 * GIB, 32 * GIB))
    assert found.stages[1].kv_bytes.high > found.stages[0].kv_bytes.high + 14 * GIB


def test_a_model_that_does_not_fit_says_so_with_its_numbers(make: Make) -> None:
    found = budget(make("llama"), Split(1), GIB // 2, max_model_len=4096)
    assert not found.fits and found.kv_tokens[:2] == (0, 0)
    assert found.reasons == (
        "a rank has no room for a KV cache: weights 0.0 GiB and overhead "
        f"{found.stages[0].overhead.mid / GIB:.1f} GiB (at most "
        f"{found.stages[0].overhead.high / GIB:.1f}) of 0.5 GiB",
    )


def test_a_sequence_that_is_too_long_says_what_it_takes(make: Make) -> None:
    found = budget(make("llama"), Split(1), 16 * GIB, max_model_len=10_000_000)
    assert not found.fits
    assert "one sequence of 10000000 tokens takes" in found.reasons[0]


def test_defaults_follow_the_device(make: Make) -> None:
    assert default_batch(192 * GIB) == (16384, 1024)
    assert default_batch(141 * GIB) == (8192, 1024)
    assert default_batch(40 * GIB) == (2048, 256)
    assert default_batch(40 * GIB, "0.8.3") == (2048, 1024)
    assert default_batch(80 * GIB, "0.7.3", 20_000) == (20_000, 256)
    assert default_batch(80 * GIB, "0.7.3", 131_072) == (2048, 256)
    assert default_block_size(make("llama")) == 16
    assert default_block_size(make("llama"), "cpu") == 128
    assert default_block_size(make("latent")) == 64


def test_an_a100_is_a_small_device_by_its_name_or_its_capability(make: Make) -> None:
    assert default_batch(80 * GIB, None, 4096, "NVIDIA A100-SXM4-80GB") == (2048, 256)
    assert default_batch(80 * GIB, None, 4096, "NVIDIA H100 80GB HBM3") == (8192, 1024)
    model = make("llama")
    named, capable, other = (
        budget(model, Split(1), 80 * GIB, **more).stages[0].terms
        for more in ({"device": "A100-80"}, {"capability": 8.0}, {"capability": 9.0})
    )
    assert named == capable != other


def test_a_hybrid_says_how_many_sequences_its_states_allow(make: Make) -> None:
    model = make("hybrid", linear_num_value_heads=2048, linear_value_head_dim=512)
    found = budget(model, Split(1), 24 * GIB, max_model_len=64, max_num_seqs=1024)
    assert "captured only with max_num_seqs of at most" in found.reasons[-1]
    assert budget(model, Split(1), 24 * GIB, max_model_len=64, eager=True).reasons == ()


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"utilization": 0}, "gpu_memory_utilization"),
        ({"utilization": 1.1}, "gpu_memory_utilization"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"max_num_seqs": -1}, "max_num_seqs"),
        ({"max_num_batched_tokens": 1.5}, "max_num_batched_tokens"),
        ({"engine_version": "newest"}, "newest"),
        ({"kv_cache_dtype": "fp3"}, "fp3"),
    ],
)
def test_a_value_that_cannot_be_is_refused(asked: dict[str, Any], named: str, make: Make) -> None:
    with pytest.raises(PlanError, match=named) as refused:
        budget(make("llama"), Split(1), 80 * GIB, **asked)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("memory", [0, -1, True, (GIB, GIB)])
def test_a_memory_that_cannot_be_is_refused(memory: Any, make: Make) -> None:
    with pytest.raises(PlanError, match="memory of"):
        budget(make("llama"), Split(1), memory)
