"""Make a tiny model with random weights, a tokenizer and a chat template, the same on every host.

Run by the engine's Python: random_model.py ARCHITECTURE OUT.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SEED = 20
VOCABULARY = 512
POSITIONS = 2048
END = "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = [
    "one node leads and the others join it",
    "tensors are split within a layer, pipelines between layers",
    "What is the capital of France? Paris.",
    "0 1 2 3 4 5 6 7 8 9",
]
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": False,
}
# The MLA sizes are those of the real model, since vLLM's CPU kernel knows no others.
DEEPSEEK = {
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
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}
# In the published config.json and read by vLLM, but transformers does not write them.
DEEPSEEK_ROUTER = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1}


def save_tokenizer(out: Path) -> dict[str, Any]:
    """Train a byte-level tokenizer on a few lines and return the ids a model's config needs."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", END, "<pad>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=None,
        eos_token=END,
        pad_token="<pad>",  # noqa: S106  a token of text
        model_max_length=POSITIONS,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(out)
    return {
        "bos_token_id": None,
        "eos_token_id": fast.eos_token_id,
        "pad_token_id": fast.pad_token_id,
    }


def main() -> None:
    """Write one model."""
    architecture, out = sys.argv[1], Path(sys.argv[2])
    ids = save_tokenizer(out)
    torch.manual_seed(SEED)
    # One thread: how work is cut over threads would otherwise reach the initial values.
    torch.set_num_threads(1)
    if architecture == "deepseek-v3":
        model = DeepseekV3ForCausalLM(DeepseekV3Config(**COMMON, **DEEPSEEK, **ids))
    else:
        model = LlamaForCausalLM(LlamaConfig(**COMMON, num_key_value_heads=2, **ids))
    model.to(torch.bfloat16).save_pretrained(out)
    if architecture == "deepseek-v3":
        path = out / "config.json"
        config = json.loads(path.read_text())
        config.pop("num_nextn_predict_layers", None)
        path.write_text(json.dumps({**config, **DEEPSEEK_ROUTER}, indent=1))


main()
