"""Inkling: windows and relative positions, short convolutions around each part, experts with sinks.

Read from vLLM 0.32's `vllm.models.inkling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.mixture import ENDS
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

# The last of so many layers attends to all tokens, where nothing says which.
EVERY = 6
ROUTER_PADDING = 8
SIDES, FRAMES, CHANNELS, CHANNEL_PADDING = 40, 2, 3, 64


@frozen
class Relative(Grouped):
    """Grouped attention with a bias for each distance, and four short convolutions of a layer.

    The convolutions look back `kernel` tokens: keys, values, and what attention and experts add.
    """

    relative: int = 16
    extent: int = 1024
    kernel: int = 4

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and norms, the biases and the convolutions."""
        yield from Grouped.tensors(self, parts)
        name, by_head, by_kv = self.module, Cut("column", self.heads), Cut("kv", self.kv_heads)
        wide = self.heads * self.relative
        yield from parts.linear(f"{name}.r_proj", self.hidden, wide, by_head, "attention")
        biases = self.relative * self.extent
        yield parts.vector(f"{name}.rel_logits_proj", biases, "attention")
        both = 2 * self.kv_heads * self.head_size * self.kernel
        yield parts.vector(f"{name}.kv_sconv", both, "attention", by_kv)
        streams = 2 * self.hidden * self.kernel
        yield parts.vector("sconv", streams, "attention", Cut("column", self.hidden))

    def cache(self) -> KvCache:
        """Return keys and values, and beside them the inputs of the convolutions.

        These are one row for each KV head and token, as wide as the next power of two.
        """
        row = 2 * self.head_size + 2 * (self.hidden // self.kv_heads)
        wide = 1 << (row - 1).bit_length()
        inputs = KvCache("sliding", self.kv_heads, wide, 0, self.kernel, block=self.kernel)
        return replace(Grouped.cache(self), beside=inputs)


@frozen
class Sinks(Experts):
    """Experts among which the shared ones are chosen, too: their weights are never quantized."""

    sinks: int = 0
    scale: bool = False

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield router, experts and sinks."""
        name, gate = self.module, f"{self.module}.gate"
        rows = -(-(self.count + self.sinks) // ROUTER_PADDING) * ROUTER_PADDING
        yield parts.plain_linear(gate, self.hidden, rows, WHOLE, "router")
        if self.score_bias:
            yield parts.vector(f"{gate}.e_score_correction_bias", self.count, "router", width=4)
        if self.scale:
            yield parts.vector(f"{gate}.global_scale", 1, "router", width=4)
        wide = self.sinks * self.inner
        column, row = Cut("column", self.inner), Cut("row", self.inner)
        first, second = f"{name}.shared_experts.w13", f"{name}.shared_experts.w2"
        yield parts.plain_linear(first, self.hidden, 2 * wide, column, "shared_expert")
        yield parts.plain_linear(second, wide, self.hidden, row, "shared_expert")
        yield from parts.experts(
            f"{name}.experts", self.count, self.hidden, self.inner, gated=self.gated
        )


def inkling(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; each rank and stage holds the whole embedding."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    whole, window = _attention(config, "", None), config.count("sliding_window_size", default=512)
    local = _attention(config, "swa_", window)
    near, dense_first = _near(config, layers), _dense(config, layers)
    wide = config.count("dense_intermediate_size", "intermediate_size")
    narrow = config.count("moe_intermediate_size", "intermediate_size")
    experts = Sinks(
        hidden,
        narrow,
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        score_bias=config.flag("use_gate_bias"),
        sinks=config.count("n_shared_experts"),
        scale=config.flag("use_global_scale"),
    )
    scaled = {"mlp.global_scale": 1} if experts.scale else {}
    blocks = [
        Block(
            local if index in near else whole,
            (Dense(hidden, wide) if index < dense_first else experts,),
            extras=scaled if index < dense_first else {},
        )
        for index in range(layers)
    ]
    parts = Parts(outline.quantization, "")
    norm = [parts.vector("embed_norm", hidden)] if config.flag("use_embed_norm") else []
    outline = replace(outline, everywhere=ENDS)
    model = decoder(outline, blocks, others=others, embedding=norm)
    table = replace(model.embedding[0], shard="replicated", units=1)
    return replace(
        model,
        embedding=(table, *model.embedding[1:]),
        tensor_divides=min(whole.kv_heads, local.kv_heads),
    )


def _attention(config: Settings, kind: str, window: int | None) -> Relative:
    heads = config.count(f"{kind}num_attention_heads", "num_attention_heads")
    return Relative(
        hidden=config.count("hidden_size"),
        heads=heads,
        kv_heads=config.count(f"{kind}num_key_value_heads", "num_key_value_heads", default=heads),
        head_size=config.count(f"{kind}head_dim", "head_dim"),
        qk_norm="head",
        window=window,
        relative=config.count("d_rel", default=16),
        extent=window or config.count("rel_extent", default=1024),
        kernel=config.count("sconv_kernel_size", "conv_kernel_size", default=4),
    )


def _near(config: Settings, layers: int) -> set[object]:
    """Return the layers that look back on a window."""
    if "local_layer_ids" in config:
        return set(config.numbers("local_layer_ids"))
    kinds = config.items("layer_types")
    if kinds:
        return {index for index, kind in enumerate(kinds) if kind == "hybrid_sliding"}
    return {index for index in range(layers) if (index + 1) % EVERY}


def _dense(config: Settings, layers: int) -> int:
    """Return how many layers are dense."""
    kinds = config.of_layers("mlp_layer_types", layers, "dense", "sparse")
    return kinds.count("dense") if kinds else config.size("dense_mlp_idx")


def towers(config: Settings, hidden: int, parts: Parts) -> Iterator[Tensor]:
    """Yield what sees and what hears: patches are folded, and sounds looked up in a table."""
    sees, hears = config.section("vision_config"), config.section("audio_config")
    if sees is not None:
        sides = sees.count("patch_size", default=SIDES) ** 2
        numbers = sides * sees.count("temporal_patch_size", default=FRAMES)
        numbers *= sees.count("n_channels", "num_channels", default=CHANNELS)
        folded = -(-numbers // CHANNEL_PADDING) * CHANNEL_PADDING
        yield parts.vector("vision.linear", folded * hidden + hidden, "vision")
    if hears is not None:
        rows = hears.count("n_mel_bins", default=80) * hears.count("mel_vocab_size", default=256)
        yield parts.vector("audio.encoder", rows * hidden + hidden, "vision")
