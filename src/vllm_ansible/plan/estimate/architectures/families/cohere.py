"""Cohere's decoders: attention and block side by side behind one norm, windows in three of four.

Read from vLLM 0.32's `commandr.py`: every stage holds the embedding, which is the head, too, and
tensor ranks add up both parts of a layer at once.
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import QkNorm
from vllm_ansible.plan.estimate.architectures.families.decoder import Block, Outline, decoder
from vllm_ansible.plan.estimate.architectures.families.llama import (
    Traits,
    grouped,
    head_size,
    windows,
)
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.model import Model, Role, Tensor

EVERYWHERE: tuple[Role, ...] = ("embedding", "norm")


def command_r(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Command R and R+, which see all tokens; R+ has norms of queries and keys."""
    config = outline.config
    if "model_max_length" in config:  # stands above the positions there
        longest = {"max_position_embeddings": config.count("model_max_length")}
        config = Settings(longest, config.where).over(config)
    norm: QkNorm = "full" if config.flag("use_qk_norm") else "none"
    return _decoder(replace(outline, config=config), Traits(sliding="none", qk_norm=norm), others)


def command_a(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Command R7B and Command A: a token sees the window and itself."""
    return _decoder(outline, Traits(), others)


def _decoder(outline: Outline, traits: Traits, others: tuple[Tensor, ...]) -> Model:
    config = outline.config
    traits = replace(traits, qkv_bias=False, output_bias=False)
    blocks = [
        Block(
            grouped(config, traits, window + 1 if window else None),
            (plain_dense(config),),
            norms=1,
            sums=1,
        )
        for window in windows(config, traits)
    ]
    outline = replace(
        outline,
        everywhere=EVERYWHERE,
        tied_by_default=True,
        rotary_sizes=(head_size(config),),
    )
    return decoder(outline, blocks, others=others)
