#!/usr/bin/env python3
"""Make models for measurements where no hub can be reached.

models.py shape CONFIG TOKENIZER OUT [NAME=VALUE ...]   a published Qwen3, DeepSeek-V3 or gpt-oss
models.py even MODEL OUT                                a Llama with an even number of heads
models.py adapter CONFIG OUT                            a LoRA adapter of rank 16 for a Qwen3

A shape has the headers of its weights and no bytes behind them: `load_format: dummy` fills them in.
What is made even computes what it did: the added heads read nothing and write zeros. It needs
PyTorch and safetensors; a shape needs the standard library alone.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)
SHARD_BYTES = 5 * 10**9
WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "U8": 1}
Tensor = tuple[str, list[int], str]


def shape(config: dict[str, Any], out: Path) -> int:
    """Write config and sparse shards of bfloat16; return the bytes they claim to hold."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    shards: list[list[Tensor]] = [[]]
    filled = 0
    for tensor in held(config):
        if filled > SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += _bytes(tensor)
    places: dict[str, str] = {}
    for place, shard in enumerate(shards, 1):
        file = f"model-{place:05}-of-{len(shards):05}.safetensors"
        _sparse(out / file, shard)
        places |= {name: file for name, _, _ in shard}
    total = sum(_bytes(tensor) for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (out / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return total


def held(config: dict[str, Any]) -> Iterator[Tensor]:
    """Yield names, sizes and types: of FP8 in blocks, each matrix of a layer with its scales."""
    if config["model_type"] == "gpt_oss":
        yield from gpt_oss_tensors(config)
        return
    deepseek = config["model_type"] == "deepseek_v3"
    quantized = config.get("quantization_config", {})
    packed = quantized.get("group_size") if quantized.get("quant_method") == "awq" else None
    block = quantized.get("weight_block_size") if quantized.get("quant_method") == "fp8" else None
    for name, sizes in deepseek_tensors(config) if deepseek else qwen_tensors(config):
        inside = ".layers." in name and not name.endswith(".mlp.gate.weight")
        if block and inside and len(sizes) == 2:
            blocks = [-(-size // each) for size, each in zip(sizes, block, strict=True)]
            yield name, sizes, "F8_E4M3"
            yield f"{name}_scale_inv", blocks, "F32" if deepseek else "BF16"
        elif packed and inside and len(sizes) == 2:
            rows, columns = sizes
            at = name.removesuffix("weight")
            # Eight numbers of 4 bits each in one of 32, of outputs that lie side by side.
            yield f"{at}qweight", [columns, rows // 8], "I32"
            yield f"{at}qzeros", [columns // packed, rows // 8], "I32"
            yield f"{at}scales", [columns // packed, rows], "F16"
        else:
            yield name, sizes, "F32" if name.endswith("_correction_bias") else "BF16"


def gpt_oss_tensors(config: dict[str, Any]) -> Iterator[Tensor]:
    """Yield what the hub's checkpoints of gpt-oss have: experts in MXFP4, 32 numbers a scale."""
    hidden, width, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    experts = config["num_local_experts"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden], "BF16"
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", [hidden], "BF16"
        for part, rows in (("q", heads), ("k", groups), ("v", groups)):
            yield f"{at}self_attn.{part}_proj.weight", [rows, hidden], "BF16"
            yield f"{at}self_attn.{part}_proj.bias", [rows], "BF16"
        yield f"{at}self_attn.o_proj.weight", [hidden, heads], "BF16"
        yield f"{at}self_attn.o_proj.bias", [hidden], "BF16"
        yield f"{at}self_attn.sinks", [config["num_attention_heads"]], "BF16"
        yield f"{at}mlp.router.weight", [experts, hidden], "BF16"
        yield f"{at}mlp.router.bias", [experts], "BF16"
        for part, rows, columns in (
            ("gate_up_proj", 2 * width, hidden),
            ("down_proj", hidden, width),
        ):
            inside = f"{at}mlp.experts.{part}"
            yield f"{inside}_blocks", [experts, rows, columns // 32, 16], "U8"
            yield f"{inside}_scales", [experts, rows, columns // 32], "U8"
            yield f"{inside}_bias", [experts, rows], "BF16"
    yield "model.norm.weight", [hidden], "BF16"
    yield "lm_head.weight", [config["vocab_size"], hidden], "BF16"


def deepseek_tensors(config: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Yield names and sizes as the hub's checkpoints of DeepSeek-V3 have them, without MTP."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    plain, rotated = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    value, width = config["v_head_dim"], config["moe_intermediate_size"]
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", [hidden]
        yield f"{at}self_attn.q_a_proj.weight", [query, hidden]
        yield f"{at}self_attn.q_a_layernorm.weight", [query]
        yield f"{at}self_attn.q_b_proj.weight", [heads * (plain + rotated), query]
        yield f"{at}self_attn.kv_a_proj_with_mqa.weight", [latent + rotated, hidden]
        yield f"{at}self_attn.kv_a_layernorm.weight", [latent]
        yield f"{at}self_attn.kv_b_proj.weight", [heads * (plain + value), latent]
        yield f"{at}self_attn.o_proj.weight", [hidden, heads * value]
        if layer < config["first_k_dense_replace"]:
            yield from _three(f"{at}mlp.", hidden, config["intermediate_size"])
            continue
        yield f"{at}mlp.gate.weight", [config["n_routed_experts"], hidden]
        yield f"{at}mlp.gate.e_score_correction_bias", [config["n_routed_experts"]]
        for one in range(config["n_routed_experts"]):
            yield from _three(f"{at}mlp.experts.{one}.", hidden, width)
        yield from _three(f"{at}mlp.shared_experts.", hidden, width * config["n_shared_experts"])
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [config["vocab_size"], hidden]


def _three(at: str, hidden: int, width: int) -> Iterator[tuple[str, list[int]]]:
    yield f"{at}gate_proj.weight", [width, hidden]
    yield f"{at}up_proj.weight", [width, hidden]
    yield f"{at}down_proj.weight", [hidden, width]


def qwen_tensors(config: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Yield names and sizes as the hub's checkpoints of Qwen3 have them."""
    hidden, size = config["hidden_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    yield "model.embed_tokens.weight", [config["vocab_size"], hidden]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", [hidden]
        yield f"{at}self_attn.q_proj.weight", [heads, hidden]
        yield f"{at}self_attn.k_proj.weight", [groups, hidden]
        yield f"{at}self_attn.v_proj.weight", [groups, hidden]
        yield f"{at}self_attn.o_proj.weight", [hidden, heads]
        yield f"{at}self_attn.q_norm.weight", [size]
        yield f"{at}self_attn.k_norm.weight", [size]
        experts = config.get("num_experts", 0)
        if experts:
            yield f"{at}mlp.gate.weight", [experts, hidden]
        width = config["moe_intermediate_size"] if experts else config["intermediate_size"]
        for inside in [f"mlp.experts.{one}." for one in range(experts)] or ["mlp."]:
            yield from _three(f"{at}{inside}", hidden, width)
    yield "model.norm.weight", [hidden]
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", [config["vocab_size"], hidden]


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor[1]) * WIDTHS[tensor[2]]


def _sparse(path: Path, shard: list[Tensor]) -> None:
    """Write the header of a file of safetensors, and a hole in place of what follows."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, sizes, kind in shard:
        begin, end = end, end + _bytes((name, sizes, kind))
        header[name] = {"dtype": kind, "shape": sizes, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def adapter(config: dict[str, Any], out: Path, rank: int = 16) -> int:
    """Write an adapter for every linear layer of a dense Qwen3, all zeros; return its bytes."""
    out.mkdir(parents=True, exist_ok=True)
    found: list[Tensor] = []
    modules = set()
    for name, sizes in qwen_tensors(config):
        if "_proj." in name:
            at = f"base_model.model.{name.removesuffix('.weight')}"
            modules.add(name.split(".")[-2])
            found += [(f"{at}.lora_A.weight", [rank, sizes[1]], "BF16")]
            found += [(f"{at}.lora_B.weight", [sizes[0], rank], "BF16")]
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    settings |= {"target_modules": sorted(modules), "task_type": "CAUSAL_LM"}
    (out / "adapter_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    _sparse(out / "adapter_model.safetensors", found)
    return sum(_bytes(tensor) for tensor in found)


def even(model: Path, out: Path) -> str:
    """Copy a Llama with heads added until tensor ranks can share them; return how many it has."""
    import torch
    from safetensors.torch import load_file, save_file

    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    groups = config["num_key_value_heads"]
    more = 1 << (groups - 1).bit_length()
    each = config["num_attention_heads"] // groups
    config |= {"head_dim": size, "num_key_value_heads": more, "num_attention_heads": more * each}
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    added = more - groups
    for file in sorted(model.glob("*.safetensors")):
        found = load_file(file)
        for name, tensor in found.items():
            for part, rows in (("q_proj", each * size), ("k_proj", size), ("v_proj", size)):
                if f"self_attn.{part}.weight" in name:
                    zeros = torch.zeros(added * rows, tensor.shape[1], dtype=tensor.dtype)
                    found[name] = torch.cat([tensor, zeros])
            if "self_attn.o_proj.weight" in name:
                zeros = torch.zeros(tensor.shape[0], added * each * size, dtype=tensor.dtype)
                found[name] = torch.cat([tensor, zeros], dim=1)
        save_file(found, out / file.name, metadata={"format": "pt"})
    for index in model.glob("*.index.json"):
        shutil.copy(index, out / index.name)
    return f"{config['num_attention_heads']} heads in {more} groups"


def _take_tokenizer(source: Path, out: Path) -> None:
    for name in TOKENIZER:
        if (source / name).is_file():
            shutil.copy(source / name, out / name)


def main(words: list[str]) -> None:
    """Make what is asked for, and say what it came to."""
    match words:
        case ["shape", config, tokenizer, out, *given]:
            wanted = json.loads(Path(config).read_text(encoding="utf-8"))
            for one in given:
                name, _, value = one.partition("=")
                wanted[name] = json.loads(value)
            print(f"{out}: {shape(wanted, Path(out)) / 2**30:.1f} GiB")
            _take_tokenizer(Path(tokenizer), Path(out))
        case ["adapter", config, out]:
            wanted = json.loads(Path(config).read_text(encoding="utf-8"))
            print(f"{out}: {adapter(wanted, Path(out)) >> 20} MiB")
        case ["even", model, out]:
            print(f"{out}: {even(Path(model), Path(out))}")
            _take_tokenizer(Path(model), Path(out))
        case _:
            sys.exit((__doc__ or "").strip())


if __name__ == "__main__":
    main(sys.argv[1:])
