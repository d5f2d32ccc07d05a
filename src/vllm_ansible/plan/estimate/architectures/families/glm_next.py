"""GLM-5-Next: delta attention, latent attention without rotation in every fourth layer, experts.

Read from vLLM 0.32's `glm5next`: its indexer keeps one key for a pool of tokens, each layer has
four streams of residuals, and attention of both kinds is never quantized, whatever the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Indexer
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense
from vllm_ansible.plan.estimate.architectures.families.latent import (
    choices,
    deepseek_experts,
    indexer,
    latent,
)
from vllm_ansible.plan.estimate.architectures.families.parts import Parts
from vllm_ansible.plan.estimate.architectures.families.recurrent import KeyedDelta
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

# Layers that are dense, and every so many that attend to tokens, where nothing says which.
DENSE_FIRST, EVERY = 3, 4
KINDS = "linear_attention", "indexed_attention", "full_attention"


@frozen
class PooledIndexer(Indexer):
    """An indexer that weighs the tokens of a pool by gates."""

    def tensors(self, parts: Parts, hidden: int, module: str) -> Iterator[Tensor]:
        """Yield the indexer's projections, and what forms a pool."""
        yield from Indexer.tensors(self, parts, hidden, module)
        name = f"{module}.indexer.index_kpool_compress"
        yield parts.vector(f"{name}_ape", self.pool * self.head_size, width=4)
        yield parts.vector(f"{name}_gate", self.head_size * hidden, "attention")


def glm5_next(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder."""
    config = outline.config
    outline = replace(outline, quantization=outline.quantization.without("self_attn"))
    hidden, layers = config.count("hidden_size"), layer_count(config)
    each, pool = indexer(config), config.count("index_kpool", default=16)
    pooled = PooledIndexer(each.heads, each.head_size, each.query_rank, pool=pool)
    whole, delta = latent(config, pooled), _delta(config)
    kinds = config.of_layers("layer_types", layers, *KINDS) or [
        "linear_attention" if index % EVERY != EVERY - 1 else "indexed_attention"
        for index in range(layers)
    ]
    feeds = config.of_layers("mlp_layer_types", layers, "dense", "sparse")
    first = config.size("first_k_dense_replace", DENSE_FIRST)
    feeds = feeds or ["dense" if index < first else "sparse" for index in range(layers)]
    experts = replace(deepseek_experts(config), score_bias=True)
    dense = Dense(hidden, config.count("intermediate_size"))
    streams = config.count("hc_mult", default=4)
    mixes = (2 + streams) * streams
    singles = {
        f"hc_{part}_{name}": size
        for part in ("attn", "ffn")
        for name, size in (("fn", mixes * streams * hidden), ("base", mixes), ("scale", 3))
    }
    blocks = [
        Block(
            delta if kinds[index] == "linear_attention" else whole,
            (experts if feeds[index] == "sparse" else dense,),
            singles=singles,
        )
        for index in range(layers)
    ]
    return decoder(outline, blocks, others=others, buffers=(choices(config),))


def _delta(config: Settings) -> KeyedDelta:
    """Return delta attention; older configurations have its sizes in a section of their own."""
    linear = config.section("linear_attn_config")
    if linear is not None:
        heads, size = linear.count("num_heads"), linear.count("head_dim")
        kernel = linear.count("short_conv_kernel_size")
    else:
        heads, size = config.count("linear_num_heads"), config.count("linear_head_dim")
        kernel = config.count("linear_conv_kernel_dim", default=4)
    return KeyedDelta(
        config.count("hidden_size"), heads, size, kernel, whole_gate=False, bounded=True
    )
