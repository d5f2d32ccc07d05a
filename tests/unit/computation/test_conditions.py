"""What changes right numbers, among all arguments of the locked release of vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.computation.conditions import INDIFFERENT, changes_numbers, conditions

ARGUMENTS = (Path(__file__).parents[2] / "data/vllm-arguments.txt").read_text().split()
# Read through one by one; the test below holds that no other one counts.
NUMERIC = {
    "additional-config",
    "all2all-backend",
    "allow-deprecated-quantization",
    "attention-backend",
    "attention-config",
    "block-size",
    "code-revision",
    "compilation-config",
    "config-format",
    "convert",
    "default-mm-loras",
    "diffusion-config",
    "disable-cascade-attn",
    "disable-sliding-window",
    "dtype",
    "enable-flashinfer-autotune",
    "enable-hc-sp",
    "enable-lora",
    "enable-mamba-cache-stochastic-rounding",
    "enable-mamba-shared-prefix-checkpoint",
    "enable-mixed-moe-lora-format",
    "enable-moe-shared-loras",
    "enable-prompt-embeds",
    "enable-tower-connector-lora",
    "engram-config",
    "fully-sharded-loras",
    "gdn-prefill-backend",
    "hf-config-path",
    "hf-overrides",
    "ignore-patterns",
    "io-processor-plugin",
    "ir-op-priority",
    "kda-decode-backend",
    "kda-prefill-backend",
    "kernel-config",
    "kv-cache-dtype",
    "kv-cache-dtype-skip-layers",
    "kv-sharing-fast-prefill",
    "linear-backend",
    "load-format",
    "logits-processors",
    "logprobs-mode",
    "lora-dtype",
    "lora-modules",
    "lora-target-modules",
    "mamba-backend",
    "mamba-block-size",
    "mamba-cache-dtype",
    "mamba-cache-mode",
    "mamba-cache-philox-rounds",
    "mamba-config",
    "mamba-ssm-cache-dtype",
    "mamba-ssu-algorithm",
    "max-cpu-loras",
    "max-lora-cls-labels",
    "max-lora-rank",
    "max-loras",
    "model",
    "model-class-overrides",
    "model-impl",
    "model-loader-extra-config",
    "model-weights",
    "moe-backend",
    "optimization-level",
    "performance-mode",
    "pooler-config",
    "quantization",
    "quantization-config",
    "reasoning-config",
    "replayssm-buffer-len",
    "revision",
    "runner",
    "seed",
    "sparse-indexer-topk-backend",
    "spec-method",
    "spec-model",
    "spec-tokens",
    "specialize-active-lora",
    "speculative-config",
    "swa-bounded-replay",
    "tokenizer",
    "tokenizer-mode",
    "tokenizer-revision",
    "trust-remote-code",
    "use-replayssm",
    "watermark-config",
    "weight-transfer-config",
    "worker-cls",
    "worker-extension-cls",
}


def test_what_changes_right_numbers_is_part_of_the_conditions_and_a_layout_is_not() -> None:
    engine = {
        "model": "o/m",
        "model_source": "hub",
        "arguments": ["--dtype", "float32", "--tensor-parallel-size", "2", "--quantization=fp8"],
        "environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"},
    }
    told = conditions(engine, "0.32.0", "nvidia")
    assert told.startswith(
        "hub:o/m accelerator=nvidia attention-backend=FLASHINFER dtype=float32 quantization=fp8 "
        "vllm=0.32.0 prompts="
    )
    other = {**engine, "arguments": ["--dtype", "float32", "--quantization=fp8"]}
    assert conditions(other, "0.32.0", "nvidia") == told
    assert conditions(other, "0.33.0", "nvidia") != told


def test_every_argument_of_the_release_either_changes_numbers_or_does_not() -> None:
    assert {name for name in ARGUMENTS if changes_numbers(name)} == NUMERIC


def test_no_name_of_an_indifferent_argument_is_misspelt() -> None:
    plain = {name for name in INDIFFERENT if not name.endswith("*")}
    assert plain <= set(ARGUMENTS)
    for family in INDIFFERENT:
        if family.endswith("*"):
            assert any(name.startswith(family[:-1]) for name in ARGUMENTS), family


@pytest.mark.parametrize(
    "words",
    [
        ["--hf-overrides", '{"rope_scaling": {"rope_type": "yarn"}}'],
        ["--hf-overrides.rope_theta", "500000"],
        ["--rope-theta", "500000"],
        ["--tokenizer", "/models/other"],
        ["--enable-lora"],
        ["--lora-modules", "a=/adapters/a"],
        ["--no-trust-remote-code"],
        ["--an-argument-of-a-later-release", "1"],
    ],
)
def test_an_engine_with_it_is_not_compared_with_one_without(words: list[str]) -> None:
    plain = {"model": "/m", "model_source": "path", "arguments": ["--max-num-seqs", "8"]}
    changed = {**plain, "arguments": [*words, "--max-num-seqs", "8"]}
    assert conditions(changed, "0.32.0", "cpu") != conditions(plain, "0.32.0", "cpu")


@pytest.mark.parametrize(
    "words",
    [
        ["--tensor-parallel-size", "3"],
        ["--max-model-len", "4096"],
        ["--kv-cache-memory-bytes", "268435456", "--no-enable-prefix-caching"],
        ["--api-key", "secret", "--hf-token=secret"],
        ["--mm-processor-kwargs", "{}"],
    ],
)
def test_a_layout_memory_and_secrets_are_no_part_of_it(words: list[str]) -> None:
    plain = {"model": "/m", "model_source": "path", "arguments": []}
    changed = {**plain, "arguments": words}
    assert conditions(changed, "0.32.0", "cpu") == conditions(plain, "0.32.0", "cpu")


def test_values_with_structure_are_kept_as_their_digest() -> None:
    engine = {"model": "/m", "model_source": "path", "arguments": ["--hf-overrides", '{"a": 1}']}
    told = conditions(engine, "0.32.0", "cpu")
    assert "hf-overrides=" in told and "{" not in told


def test_of_variables_those_of_vllm_count_that_are_no_matter_of_logs_and_addresses() -> None:
    plain = {"model": "/m", "model_source": "path", "arguments": []}
    same = {
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "VLLM_HOST_IP": "10.0.0.1",
        "VLLM_API_KEY": "s",
        "X": "1",
    }
    other = {"VLLM_USE_DEEP_GEMM": "0"}
    told = conditions(plain, "0.32.0", "nvidia")
    assert conditions({**plain, "environment": same}, "0.32.0", "nvidia") == told
    assert conditions({**plain, "environment": other}, "0.32.0", "nvidia") != told


def test_the_longest_context_counts_where_positions_are_chosen_by_it() -> None:
    engine = {"model": "/m", "model_source": "path", "arguments": ["--max-model-len", "8192"]}
    plain = conditions(engine, "0.32.0", "cpu", {"long_rope": False})
    assert plain == conditions(engine, "0.32.0", "cpu")
    assert "max-model-len=8192" in conditions(engine, "0.32.0", "cpu", {"long_rope": True})
