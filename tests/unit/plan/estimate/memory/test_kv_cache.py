"""The cache of one token, and how many tokens so many bytes hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.memory.blocks import bytes_per_sequence, capacity, groups
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.kv_cache import kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.problem import PlanError

from .deployments import model

Make = Callable[..., Model]
CONFIGS = Path(__file__).parents[4] / "data" / "public" / "configs"
GIB = 2**30


def configuration(name: str) -> Model:
    return load(str(CONFIGS / f"{name}_config.json"))


@pytest.mark.parametrize(
    ("name", "split", "dtype", "version", "expected"),
    [
        ("deepseek-ai--DeepSeek-R1", Split(8), "auto", None, 70_272),
        ("deepseek-ai--DeepSeek-R1", Split(1), "auto", None, 70_272),
        ("deepseek-ai--DeepSeek-R1", Split(8), "auto", "0.7.3", 78_080),
        ("deepseek-ai--DeepSeek-R1", Split(8, decode_context=8), "auto", None, 8_784),
        ("deepseek-ai--DeepSeek-V3.2", Split(8), "auto", None, 78_324),
        ("deepseek-ai--DeepSeek-V3.2", Split(8), "fp8", None, 43_188),
        ("deepseek-ai--DeepSeek-V3.2", Split(8), "fp8_ds_mla", None, 61 * (656 + 132)),
        ("Qwen--Qwen3-235B-A22B", Split(4), "auto", None, 48_128),
        ("Qwen--Qwen3-235B-A22B", Split(8), "auto", None, 48_128),
        ("meta-llama--Meta-Llama-3.1-70B", Split(4), "auto", None, 81_920),
        ("meta-llama--Meta-Llama-3.1-70B", Split(4), "fp8", None, 40_960),
    ],
)
def test_a_token_takes_what_logs_show(
    name: str, split: Split, dtype: str, version: str | None, expected: int
) -> None:
    assert kv_bytes_per_token(configuration(name), split, dtype, version) == (expected,)


def test_blocks_are_whole_and_the_smallest_stage_decides(make: Make) -> None:
    model, split = make("llama"), Split(1, 2)
    # Three layers a stage, four heads of 32, keys and values in 16 bits, 16 tokens.
    block = 3 * 4 * 32 * 2 * 2 * 16
    found = capacity(model, split, (10 * block + 1, 7 * block + 9), Request(64))
    assert (found.blocks, found.tokens, found.concurrency) == (7, 112, 7 / 4)


def test_states_take_blocks_of_the_same_pool() -> None:
    """One log: 5.98 GiB in fp8 held 567,978 tokens at 131,072 (noonghunna/club-3090#612)."""
    model = configuration("Qwen--Qwen3.5-35B-A3B")
    request = Request(131_072, prefix_caching=True)
    found = capacity(model, Split(1), (5.98 * GIB,), request, "fp8", "0.24.0")
    assert found.tokens == 567_978
    assert found.concurrency == pytest.approx(4.333, abs=0.001)


@pytest.mark.parametrize(
    ("name", "prefix_caching", "version", "states"),
    [
        ("Qwen--Qwen3.5-35B-A3B", True, None, 2),
        ("Qwen--Qwen3.5-35B-A3B", False, None, 1),
        ("Qwen--Qwen3.5-35B-A3B", None, None, 2),
        ("Qwen--Qwen3.5-35B-A3B", None, "0.28.0", 2),
        ("Qwen--Qwen3.5-35B-A3B", None, "0.27.1", 1),
        ("Qwen--Qwen3.5-35B-A3B", True, "0.27.1", 2),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", True, None, 3),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", True, "0.31.0", 2),
        ("nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", False, None, 1),
        ("moonshotai--Kimi-K3", True, None, 3),
        ("moonshotai--Kimi-K3", False, None, 1),
    ],
)
def test_a_sequence_keeps_the_states_of_vllm(
    name: str, prefix_caching: bool | None, version: str | None, states: int
) -> None:
    """By 0.32's own `MambaSpec.max_memory_usage_bytes`, over the size of its page."""
    request = Request(131_072, prefix_caching=prefix_caching)
    model = configuration(name)
    found = groups(model, Split(8), request, engine_version=version)
    assert min(group.per_sequence for group in found) == states
    proposing = groups(replace(model, proposed=2), Split(8), request, engine_version=version)
    assert min(group.per_sequence for group in proposing) == states + 2


def test_deepseek_v4_keeps_windows_and_a_batch_in_flight_for_each_sequence() -> None:
    """Pages and groups as vLLM 0.32 deals them, by hand, of 30 layers of ratio 4 and 31 of 128."""
    found = groups(configuration("deepseek-ai--DeepSeek-V4-Pro"), Split(8), Request(1_048_576))
    assert [group.block for group in found] == [256, 64, 64, 8, 4]
    entry, keys, state = 65 * 576, 15 * 576, 57 * 576
    assert found[0].bytes_per_block == (30 * (entry + keys) + 31 * 3 * 576,)
    assert found[3].bytes_per_block == (31 * state,)
    assert found[4].bytes_per_block == (30 * (state + keys),)
    flight = 2 * 8192
    assert [group.per_sequence for group in found] == [
        4096,
        (127 + flight) // 64 + 2,
        (127 + flight) // 64 + 2,
        (127 + flight) // 8 + 2,
        (7 + flight) // 4 + 2,
    ]


def test_deepseek_v4_flash_holds_what_a_log_shows() -> None:
    """7.7 GiB held some 150,000 tokens, in its words, of 121,344 each (vllm-project/vllm#51041)."""
    held = capacity(model("DeepSeek-V4-Flash-0731"), Split(2), (7.7 * GIB,), Request(121_344))
    assert held.tokens == pytest.approx(150_000, rel=0.07)


def test_before_0_20_1_tokens_were_counted_by_group() -> None:
    """One log: 5.38 GiB held 78,384 tokens (alvarobartt/hf-mem#60)."""
    model = configuration("openai--gpt-oss-120b")
    found = capacity(model, Split(1), (5.38 * GIB,), Request(131_072), "auto", "0.11.0")
    assert found.tokens == pytest.approx(78_384, rel=0.001)


def test_0_20_0_counts_blocks_and_0_20_1_requests(make: Make) -> None:
    """A log of 0.20.0 has 2,794,992 tokens, whole blocks of 16, for requests of 131,072."""
    asked = make("llama"), Split(1), (10_000_000.0,), Request(50)
    blocks = capacity(*asked, "auto", "0.20.0")
    assert blocks.tokens == blocks.blocks * 16
    assert capacity(*asked, "auto", "0.20.1").tokens == int(blocks.blocks / 4 * 50)


def test_a_window_bounds_what_a_sequence_takes(make: Make) -> None:
    model, request = make("windows"), Request(1_000_000, 512)
    (needed,) = bytes_per_sequence(groups(model, Split(1), request))
    token = 2 * 4 * 32 * 2 * 2
    assert needed == pytest.approx(token * 1_000_000, rel=0.01)


def test_auto_is_what_the_checkpoint_declares(make: Make) -> None:
    declared = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    model = make("llama", quantization_config=declared)
    plain = kv_bytes_per_token(make("llama"), Split(1))[0]
    assert kv_bytes_per_token(model, Split(1)) == (plain // 2,)
    assert kv_bytes_per_token(model, Split(1), "auto", "0.11.0") == (plain,)
    assert kv_bytes_per_token(model, Split(1), "bfloat16") == (plain,)


def test_a_cache_dtype_that_is_not_known_is_refused(make: Make) -> None:
    with pytest.raises(PlanError, match="'fp3' is not known"):
        kv_bytes_per_token(make("llama"), Split(1), "fp3")
