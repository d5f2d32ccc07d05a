"""Parameters and cache of real engines, byte for byte and token for token as they are derived."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.memory.blocks import capacity
from vllm_ansible.plan.estimate.memory.budget import default_block_size
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import parameters

pytestmark = pytest.mark.engine

Run = Callable[..., subprocess.CompletedProcess[str]]
LENGTH = 1024
CACHE = 12_345_678
COMMON = {
    "vocab_size": 500,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2 * LENGTH,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "head_dim": 32},
    "qwen3-moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "moe_intermediate_size": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    # Latent sizes are those of the real model, since vLLM's CPU kernel knows no others.
    "deepseek": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "kv_lora_rank": 512,
        "q_lora_rank": 64,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "moe_intermediate_size": 64,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
}

# Every worker imports this before it loads a model. It counts before the kernels of a CPU pack
# weights in their own way and let the parameters go.
COUNTING = """
from vllm.model_executor.model_loader import base_loader

finish = base_loader.process_weights_after_loading

def counted(model, *arguments):
    storages = (one.untyped_storage() for one in model.parameters())
    Counting.held = sum({one.data_ptr(): one.nbytes() for one in storages}.values())
    finish(model, *arguments)

base_loader.process_weights_after_loading = counted

class Counting:
    held = 0

    def parameter_bytes(self):
        return self.held
"""
ENGINE = """
import json, multiprocessing, sys
from vllm import LLM
from vllm.v1.executor import multiproc_executor

# Ranks go on with what is imported here. On processors vLLM would have each import it anew, for
# three quarters of the time that all of this takes.
multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")

directory = sys.argv[1]
tensor, pipeline, length, cache = map(int, sys.argv[2:6])
engine = LLM(
    model=directory,
    load_format="dummy",
    skip_tokenizer_init=True,
    tensor_parallel_size=tensor,
    pipeline_parallel_size=pipeline,
    distributed_executor_backend="mp",
    worker_extension_cls="counting.Counting",
    max_model_len=length,
    max_num_seqs=4,
    kv_cache_memory_bytes=cache,
    enforce_eager=True,
    attention_backend=sys.argv[6] or None,
)
config = engine.llm_engine.engine_core.engine_core.vllm_config.cache_config
found = {
    "bytes": engine.collective_rpc("parameter_bytes"),
    "blocks": config.num_gpu_blocks,
    "tokens": config.kv_cache_size_tokens,
}
print("FOUND", json.dumps(found), flush=True)
"""
# The engine's core in this process, where its configuration can be read.
ALONE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
# Its ranks leave their shared memory, which ends with this one.
OWN_SHARED_MEMORY = [
    *("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))),
    *("sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"),
]


SPLITS = [(1, 1), (2, 1), (1, 2), (2, 2)]
# Each takes up to a minute and a half: the one that has most to hold, the others in make soak.
ALWAYS = {("deepseek", 2, 2)}
CASES = [
    pytest.param(*case, marks=() if case in ALWAYS else pytest.mark.soak)
    for case in [(name, *split) for name in SHAPES for split in SPLITS]
]


@pytest.mark.parametrize(("name", "tensor", "pipeline"), CASES)
def test_a_rank_holds_what_is_derived(
    name: str, tensor: int, pipeline: int, tmp_path: Path, run_engine_python: Run
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**COMMON, **SHAPES[name]}))
    numbers = [str(number) for number in (tensor, pipeline, LENGTH, CACHE)]
    (tmp_path / "counting.py").write_text(COUNTING)
    variables = {**ALONE, "PYTHONPATH": str(tmp_path)}
    # A processor with AMX would take another, of other blocks.
    backend = "CPU_MLA" if name == "deepseek" else ""
    words = (ENGINE, str(tmp_path), *numbers, backend)
    ran = run_engine_python(*words, environment=variables, before=OWN_SHARED_MEMORY)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.stdout[-2000:] + ran.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("FOUND "))

    model, split = load(str(tmp_path)), Split(tensor, pipeline)
    by_stage = parameters(model, split)
    assert found["bytes"] == [size for size in by_stage for _ in range(tensor)]
    request = Request(LENGTH, block_size=default_block_size(model, "cpu"))
    held = capacity(model, split, (CACHE,) * pipeline, request)
    assert (found["blocks"], found["tokens"]) == (held.blocks, held.tokens)
