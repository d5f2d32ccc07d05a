"""Llama-Nemotron: Llama whose blocks were searched one by one, each with a size of its own.

Read from vLLM 0.32's `nemotron_nas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense
from vllm_ansible.plan.estimate.architectures.families.llama import head_size
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

# Inner sizes are rounded up to a multiple of it.
MULTIPLE = 256


def nemotron_nas(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; a block may lack its attention, its feed-forward part, or both."""
    config = outline.config
    layers, listed = layer_count(config), config.items("block_configs")
    if len(listed) != layers or not all(isinstance(one, Mapping) for one in listed):
        raise config.problem(f"block_configs names {len(listed)} of {layers} blocks")
    blocks = [
        _block(config, Settings(one, f"{config.where}: block {index}"))
        for index, one in enumerate(listed)
    ]
    heads = config.count("num_attention_heads")
    found = [one.attention.kv_heads for one in blocks if isinstance(one.attention, Grouped)]
    outline = replace(outline, rotary_sizes=(head_size(config),))
    return replace(decoder(outline, blocks, others=others), kv_heads=min(found, default=heads))


def _block(config: Settings, block: Settings) -> Block:
    attends, feeds = block.section("attention"), block.section("ffn")
    if attends is None or feeds is None:
        raise block.problem("a block names no attention or no ffn")
    if attends.flag("replace_with_linear") or feeds.flag("replace_with_linear"):
        raise block.problem("a block with a linear layer in place of a part is not known here")
    attention = None if attends.flag("no_op") else _attention(config, attends)
    feed = () if feeds.flag("no_op") else (_feed(config, feeds),)
    return Block(attention, feed, norms=(attention is not None) + len(feed))


def _attention(config: Settings, block: Settings) -> Grouped:
    heads = config.count("num_attention_heads")
    return Grouped(
        hidden=config.count("hidden_size"),
        heads=heads,
        kv_heads=heads // block.count("n_heads_in_group", limit=heads),
        head_size=head_size(config),
        qkv_bias=config.flag("attention_bias"),
        output_bias=config.flag("attention_bias"),
    )


def _feed(config: Settings, block: Settings) -> Dense:
    hidden = config.count("hidden_size")
    inner = int(2 * block.fraction("ffn_mult", 0.0) * hidden / 3)
    inner = ceil(inner / MULTIPLE) * MULTIPLE or block.count("intermediate_size")
    return Dense(hidden, inner, bias=config.flag("mlp_bias"))
