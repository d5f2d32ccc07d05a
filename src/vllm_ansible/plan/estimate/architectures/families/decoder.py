"""Put a decoder together: layers of attention and feed-forward, embedding, head, tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil
from typing import Protocol

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Layer, Model, Role, Tensor
from vllm_ansible.plan.estimate.architectures.quantization import Quantization

MOST_LAYERS = 4096
VOCABULARY_PADDING = 64
# Tokens of the default batch, for which sparse attention allocates its choices at load.
INDEX_TOKENS = 8192
# Positions of images and videos run ahead of the tokens: vLLM's `MRotaryEmbedding` makes its table
# four times as long. These have such positions also where a configuration leaves them to defaults.
MULTIMODAL_POSITIONS = 4
MULTIMODAL_ROPE = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "glm4v_moe_text",
)


class Attention(Protocol):
    """Any attention mechanism."""

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield its tensors."""

    def cache(self) -> KvCache:
        """Return what it caches."""


@frozen
class Block:
    """One decoder layer: what it attends with, what it feeds forward through, its norms.

    `extras` are tensors that no mechanism here has, whole on every rank, by name and elements;
    those of `singles` are in fp32. `sums` is how often its tensor ranks add up what they have, None
    where they do so once for each of its two parts.
    """

    attention: Attention | None
    feed_forward: tuple[Dense | Experts, ...]
    norms: int = 2
    extras: Mapping[str, int] = field(default_factory=dict)
    singles: Mapping[str, int] = field(default_factory=dict)
    sums: int | None = None


@frozen
class Outline:
    """What the families say of a model beside its blocks.

    `everywhere` names the roles that the engine's class builds on every stage, `deepstack` how many
    layers of the vision tower are kept for a whole step, to be added to layers of the decoder.
    """

    name: str
    architecture: str
    config: Settings
    quantization: Quantization
    dtype: str
    layers_at: str = "model.layers"
    everywhere: tuple[Role, ...] = ()
    tied_by_default: bool = False
    rotary_sizes: tuple[int, ...] = ()
    rotary_width: int = 0
    deepstack: int = 0
    assumed: tuple[str, ...] = ()


def decoder(
    outline: Outline,
    blocks: Sequence[Block],
    *,
    others: Iterable[Tensor] = (),
    embedding: Iterable[Tensor] = (),
    head: Iterable[Tensor] = (),
    buffers: Iterable[Tensor] = (),
) -> Model:
    """Return the model; what is given is held beside what every decoder has."""
    config = outline.config
    hidden, vocab = config.count("hidden_size"), config.count("vocab_size")
    seen: dict[tuple[Tensor, ...], tuple[Tensor, ...]] = {}
    parts = Parts(outline.quantization, "")
    tied = config.flag("tie_word_embeddings", outline.tied_by_default)
    rows = ceil(vocab / VOCABULARY_PADDING) * VOCABULARY_PADDING
    cut = Cut("vocab", rows)
    table = parts.vector("embed_tokens", rows * hidden, "embedding", cut)
    lm_head = () if tied else _head(outline, parts, hidden, cut)
    return Model(
        name=outline.name,
        architecture=outline.architecture,
        layers=tuple(
            _layer(index, block, outline, hidden, seen) for index, block in enumerate(blocks)
        ),
        embedding=(table, *embedding),
        head=(parts.vector("norm", hidden), *lm_head, *head),
        others=tuple(others),
        tied=tied,
        hidden=hidden,
        vocab=vocab,
        heads=config.count("num_attention_heads"),
        kv_heads=config.count("num_key_value_heads", default=config.count("num_attention_heads")),
        max_context=config.count("max_position_embeddings", "model_max_length", default=2048),
        dtype=outline.dtype,
        quantization=outline.quantization.name,
        on_load=outline.quantization.on_load,
        block=outline.quantization.linear.size or None
        if outline.quantization.linear.scales == "block"
        else None,
        kv_dtype=outline.quantization.kv_dtype,
        buffers=(*_rotary(outline), *_deepstack(outline, hidden), *buffers),
        everywhere=outline.everywhere,
        assumed=outline.assumed,
        most_context=_most_context(config),
    )


def _head(outline: Outline, parts: Parts, hidden: int, cut: Cut) -> tuple[Tensor, ...]:
    """Return the head, which only a checkpoint that lists it stores quantized."""
    if "lm_head" in outline.quantization.only:
        return tuple(parts.linear("lm_head", hidden, cut.units, cut, "head"))
    return (parts.vector("lm_head", cut.units * hidden, "head", cut),)


def _most_context(config: Settings) -> int:
    """Return the longest context with the positions scaled as configured, 0 where none is given.

    Never less than the engine allows: which kinds of scaling count differs between its versions.
    """
    if "max_position_embeddings" not in config:
        return 0
    given = config.count("max_position_embeddings")
    longest = given
    for name in ("rope_scaling", "rope_parameters"):
        outer = config.values.get(name)
        # One for all layers, or one for each kind of them.
        kinds = [outer, *outer.values()] if isinstance(outer, Mapping) else []
        for scaling in kinds:
            factor = scaling.get("factor") if isinstance(scaling, Mapping) else None
            if isinstance(factor, int | float) and factor > 1:
                first = scaling.get("original_max_position_embeddings")
                base = first if isinstance(first, int) and first > 0 else given
                longest = max(longest, int(factor * base))
    return longest


def layer_count(config: Settings) -> int:
    """Return how many decoder layers there are, given or listed."""
    listed = len(config.items("layers_block_type")) or None
    return config.count("num_hidden_layers", default=listed, limit=MOST_LAYERS)


def _layer(
    index: int,
    block: Block,
    outline: Outline,
    hidden: int,
    seen: dict[tuple[Tensor, ...], tuple[Tensor, ...]],
) -> Layer:
    """Return one layer; layers of equal tensors share them, which makes sums over layers cheap."""
    parts = Parts(outline.quantization, f"{outline.layers_at}.{index}.")
    tensors = [parts.vector(f"norm_{number}", hidden) for number in range(block.norms)]
    if block.attention is not None:
        tensors += block.attention.tensors(parts)
    for one in block.feed_forward:
        tensors += one.tensors(parts)
    tensors += [parts.vector(name, size) for name, size in block.extras.items()]
    tensors += [parts.vector(name, size, width=4) for name, size in block.singles.items()]
    experts = next((one for one in block.feed_forward if isinstance(one, Experts)), None)
    older = getattr(block.attention, "absorbed_before_0_8", None)
    built = tuple(tensors)
    parts_there = (block.attention is not None) + bool(block.feed_forward)
    return Layer(
        index=index,
        tensors=seen.setdefault(built, built),
        kv=block.attention.cache() if block.attention else KvCache("none"),
        experts=experts.count if experts else 0,
        experts_per_token=experts.chosen if experts else 0,
        hidden=hidden,
        absorbed_before_0_8=older(parts) if older else (),
        sums=parts_there if block.sums is None else block.sums,
    )


def _rotary(outline: Outline) -> Iterator[Tensor]:
    """Yield one table of sines and cosines for each distinct size and kind of rotated heads."""
    config = outline.config
    plain = config.count("max_position_embeddings", "model_max_length", default=2048)
    scaling = config.section("rope_scaling") or config.section("rope_parameters")
    # Gemma 3's windows rotate by another base than its full attention, and are not scaled.
    apart = "rope_local_base_freq" in config
    if scaling is not None and "sliding_attention" in scaling:
        scaling, apart = scaling.section("full_attention"), True
    positions = plain
    if scaling is not None:
        kind = scaling.text("type") or scaling.text("rope_type")
        factor = scaling.fraction("factor", 1.0)
        if "yarn" in kind and "original_max_position_embeddings" in scaling:
            positions = int(scaling.count("original_max_position_embeddings") * factor)
        elif kind == "linear":
            positions = int(plain * factor)
    if outline.config.text("model_type") in MULTIMODAL_ROPE or (
        scaling is not None and "mrope_section" in scaling
    ):
        positions *= MULTIMODAL_POSITIONS
    width = outline.rotary_width or outline.quantization.plain.bits // 8
    for number, size in enumerate(outline.rotary_sizes):
        elements = positions * size
        name = f"rotary_{number}"
        yield Tensor(name, elements, elements * width, WHOLE.shard, "other")
    if apart and len(outline.rotary_sizes) == 1:
        elements = plain * outline.rotary_sizes[0]
        yield Tensor("rotary_windows", elements, elements * width, WHOLE.shard, "other")


def _deepstack(outline: Outline, hidden: int) -> Iterator[Tensor]:
    """Yield what Qwen3-VL keeps of its vision tower for each token of a step."""
    if outline.deepstack:
        elements = outline.deepstack * INDEX_TOKENS * hidden
        size = elements * outline.quantization.plain.bits // 8
        yield Tensor("deepstack_input_embeds", elements, size, WHOLE.shard, "other")
