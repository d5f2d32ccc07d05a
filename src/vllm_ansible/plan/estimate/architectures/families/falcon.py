"""Falcon-H1: in each layer attention and a Mamba-2 mixer side by side, then a dense block.

Read from vLLM 0.32's `falcon_h1.py`: both parts and the block are added up over tensor ranks apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.llama import Traits, grouped, head_size
from vllm_ansible.plan.estimate.architectures.families.mixture import plain_dense
from vllm_ansible.plan.estimate.architectures.families.parts import Parts
from vllm_ansible.plan.estimate.architectures.families.recurrent import StateSpace
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

TRAITS = Traits(qkv_bias=False, output_bias=False, sliding="none")


@frozen
class Parallel:
    """Attention and a mixer of the same input, whose outputs are added."""

    attention: Grouped
    mixer: StateSpace

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield those of both."""
        yield from self.attention.tensors(parts)
        yield from self.mixer.tensors(parts)

    def cache(self) -> KvCache:
        """Return keys and values, and beside them the state."""
        return replace(self.attention.cache(), beside=self.mixer.cache())


def falcon_h1(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; a mixer's heads are divided, and its groups where there are several."""
    config = outline.config
    hidden, groups = config.count("hidden_size"), config.count("mamba_n_groups", default=1)
    inner = config.count("mamba_d_ssm", default=hidden * config.count("mamba_expand", default=2))
    heads = config.count("mamba_n_heads")
    mixer = StateSpace(
        hidden=hidden,
        heads=heads,
        head_size=inner // heads,
        groups=groups,
        state=config.count("mamba_d_state"),
        kernel=config.count("mamba_d_conv"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", True),
        # In the model's own precision, unless told otherwise.
        state_width=outline.quantization.plain.bits // 8,
        module="mamba",
        normed=config.flag("mamba_rms_norm"),
    )
    both = Parallel(grouped(config, TRAITS), mixer)
    feed = replace(plain_dense(config), module="feed_forward")
    outline = replace(outline, rotary_sizes=(head_size(config),))
    blocks = [Block(both, (feed,), sums=3) for _ in range(layer_count(config))]
    model = decoder(outline, blocks, others=others)
    return replace(model, tensor_divides=gcd(heads, groups) if groups > 1 else heads)
