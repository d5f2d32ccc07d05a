"""LFM2 and LFM2.5: most layers are a short convolution, read from vLLM 0.32's `short_conv.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import Traits, grouped, head_size
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.families.parts import Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

ATTENDS = Traits(qkv_bias=False, output_bias=False, qk_norm="head", sliding="none")


@frozen
class ShortConv:
    """A gated convolution over the last few tokens, whose inputs are all that is kept."""

    hidden: int
    kernel: int
    bias: bool = False
    module: str = "conv"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and the convolution."""
        name, hidden, column = self.module, self.hidden, Cut("column", self.hidden)
        yield from parts.linear(
            f"{name}.in_proj", hidden, 3 * hidden, column, "attention", bias=self.bias
        )
        yield parts.plain_linear(f"{name}.conv1d", self.kernel, hidden, column, "attention")
        if self.bias:
            yield parts.vector(f"{name}.conv1d.bias", hidden, "attention", column)
        row = Cut("row", hidden)
        yield from parts.linear(
            f"{name}.out_proj", hidden, hidden, row, "attention", bias=self.bias
        )

    def cache(self) -> KvCache:
        """Return the tail of one sequence, in 16 bits."""
        return KvCache("linear", 1, state_bytes=self.hidden * (self.kernel - 1) * 2)


def lfm2(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return LFM2: `layer_types` says which layers attend."""
    config = outline.config
    feed = Dense(config.count("hidden_size"), _inner(config), module="feed_forward")
    return _built(outline, [feed] * layer_count(config), others)


def lfm2_moe(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return LFM2-MoE: dense first, then experts."""
    config = outline.config
    first = config.size("num_dense_layers")
    experts = Experts(
        config.count("hidden_size"),
        config.count("moe_intermediate_size"),
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        score_bias=config.flag("use_expert_bias", True),
        module="feed_forward",
    )
    plain = plain_dense(config)
    feeds = [experts if index >= first else plain for index in range(layer_count(config))]
    return _built(outline, feeds, others)


def _inner(config: Settings) -> int:
    """Return the size of the dense block: two thirds of what is given, rounded up, as LFM2 does."""
    inner = config.count("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = int(config.fraction("block_ffn_dim_multiplier", 1.0) * int(2 * inner / 3))
    multiple = config.count("block_multiple_of", default=256)
    return multiple * ceil(inner / multiple)


def _built(
    outline: Outline, feeds: list[Dense] | list[Dense | Experts], others: tuple[Tensor, ...]
) -> Model:
    config = outline.config
    layers = layer_count(config)
    kinds = config.of_layers("layer_types", layers, "conv", "full_attention")
    if not kinds:
        attends = set(config.numbers("full_attn_idxs"))
        kinds = ["full_attention" if index in attends else "conv" for index in range(layers)]
    conv = ShortConv(
        config.count("hidden_size"),
        config.count("conv_L_cache", default=3),
        bias=config.flag("conv_bias"),
    )
    full = grouped(config, ATTENDS)
    blocks = [
        Block(full if kinds[index] == "full_attention" else conv, (feeds[index],))
        for index in range(layers)
    ]
    outline = replace(outline, tied_by_default=True, rotary_sizes=(head_size(config),))
    return decoder(outline, blocks, others=others)
