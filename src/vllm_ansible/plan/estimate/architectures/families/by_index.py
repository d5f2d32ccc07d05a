"""A model of unknown architecture, from the index of its weights: their names and bytes in all."""

from __future__ import annotations

import re

from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.by_size import IN_LAYER
from vllm_ansible.plan.estimate.architectures.families.decoder import Outline, layer_count
from vllm_ansible.plan.estimate.architectures.families.kept import caches
from vllm_ansible.plan.estimate.architectures.model import Layer, Model, Role, Tensor

# What a rank may hold beyond its even part: what is not divided, and what engines lay out anew.
MORE = 0.20
HEAD = re.compile(r"(?:^|\.)(?:lm_head|output)\.weight$")


def by_index(outline: Outline, checkpoint: Checkpoint) -> Model:
    """Return the model; bytes are the index's, dealt evenly to layers and divided by every rank.

    Raises PlanError where the configuration lacks what layers and caches need.
    """
    config = outline.config
    layers, hidden = layer_count(config), config.count("hidden_size")
    vocab = config.count("vocab_size")
    tied = not any(HEAD.search(name) for name in checkpoint.names)
    table = vocab * hidden * outline.quantization.plain.bits // 8
    ends = table * (1 if tied else 2)
    inside = max(0.0, (checkpoint.total - ends) * _of_layers(checkpoint, layers))
    experts = config.count("num_experts", "n_routed_experts", "num_local_experts", default=1)
    chosen = config.count("num_experts_per_tok", default=1) if experts > 1 else 0
    heads = config.count("num_attention_heads")
    tensors = _tensors(config, inside / layers, heads, experts)
    routed = experts if experts > 1 else 0
    return Model(
        name=outline.name,
        architecture=outline.architecture,
        layers=tuple(
            Layer(index, tensors, kept, routed, chosen, hidden)
            for index, kept in enumerate(caches(config, layers))
        ),
        embedding=(_end("embed_tokens", table, vocab, hidden),),
        head=() if tied else (_end("lm_head", table, vocab, hidden),),
        others=(),
        tied=tied,
        hidden=hidden,
        vocab=vocab,
        heads=heads,
        kv_heads=config.count("num_key_value_heads", default=heads),
        max_context=config.count("max_position_embeddings", "model_max_length", default=2048),
        dtype=outline.dtype,
        quantization=outline.quantization.name,
        kv_dtype=outline.quantization.kv_dtype,
        more=MORE,
        assumed=(
            *outline.assumed,
            f"{outline.architecture or 'this architecture'} is not known: its "
            f"{checkpoint.total / 2**30:.1f} GiB are the index's, taken to be divided evenly by "
            f"layers and ranks, of which one may hold {MORE:.0%} more",
            "what its layers cache is read from the usual keys of its configuration, and its "
            "speed is that of layers of such a size",
        ),
    )


def _of_layers(checkpoint: Checkpoint, layers: int) -> float:
    """Return the part of the layers' tensors that the engine loads: others are for speculation."""
    numbers = [int(found[1]) for name in checkpoint.names if (found := IN_LAYER.search(name))]
    mine = sum(1 for number in numbers if number < layers)
    return mine / len(numbers) if mine else 1.0


def _tensors(config: Settings, size: float, heads: int, experts: int) -> tuple[Tensor, ...]:
    """Return one layer of these bytes, by products: experts, attention and a dense block."""
    hidden = config.count("hidden_size")
    inner = config.count("moe_intermediate_size", "intermediate_size", default=4 * hidden)
    products = {"attention": 4 * hidden**2, "experts": experts * 3 * hidden * inner}
    total = sum(products.values())
    bytes_of = {name: size * count / total for name, count in products.items()}
    attention = Tensor(
        "attention.weight", products["attention"], bytes_of["attention"], "column", "attention",
        heads,
    )  # fmt: skip
    count, held = products["experts"], bytes_of["experts"]
    if experts > 1:
        routed = Tensor("experts.w13.weight", count, held, "experts", "experts", inner, experts)
        return attention, routed
    return attention, Tensor("mlp.weight", count, held, "column", "mlp", inner)


def _end(name: str, size: int, rows: int, hidden: int) -> Tensor:
    role: Role = "head" if name == "lm_head" else "embedding"
    return Tensor(name, rows * hidden, size, "vocab", role, rows)
