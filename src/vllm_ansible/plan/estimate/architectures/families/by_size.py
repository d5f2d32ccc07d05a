"""A model of unknown architecture, from the sizes of its tensors and the usual keys."""

from __future__ import annotations

import re
from collections import defaultdict

from vllm_ansible.plan.estimate.architectures.checkpoint import Checkpoint, Stored
from vllm_ansible.plan.estimate.architectures.families.decoder import Outline, layer_count
from vllm_ansible.plan.estimate.architectures.families.kept import caches
from vllm_ansible.plan.estimate.architectures.model import Layer, Model, Role, Shard, Tensor

IN_LAYER = re.compile(r"\.(?:layers|h|blocks|block)\.(\d+)\.(.+)")
EXPERT = re.compile(r"\.experts?\.")
# What a rank may hold beyond it: what engines do not divide, or lay out anew.
MORE = 0.10
REPLICATED = re.compile(r"norm|\bgate\b|router|bias|scale_2|input_scale|(?:^|\.)ln")


def by_size(outline: Outline, checkpoint: Checkpoint) -> Model:
    """Return the model; matrices are taken to be divided, vectors and routers to be whole.

    Raises PlanError where the configuration lacks what the cache and the layers need.
    """
    config = outline.config
    layers, heads = layer_count(config), config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    experts = config.count("num_experts", "n_routed_experts", "num_local_experts", default=1)
    by_layer: dict[int, list[Tensor]] = defaultdict(list)
    ends: dict[str, list[Tensor]] = {"embedding": [], "head": [], "others": []}
    for name, stored in sorted(checkpoint.tensors.items()):
        found = IN_LAYER.search(name)
        if found and "vis" not in name.lower():
            if int(found[1]) < layers:
                by_layer[int(found[1])].append(_tensor(found[2], stored, heads, experts))
        else:
            end = _end(name)
            ends[end].append(_end_tensor(name, stored, end))
    if not by_layer:
        raise config.problem("no tensor of this checkpoint belongs to a numbered layer")
    chosen = config.count("num_experts_per_tok", default=1) if experts > 1 else 0
    routed = experts if experts > 1 else 0
    hidden = config.count("hidden_size")
    return Model(
        name=outline.name,
        architecture=outline.architecture,
        layers=tuple(
            Layer(index, tuple(by_layer[index]), kept, routed, chosen, hidden)
            for index, kept in enumerate(caches(config, layers))
        ),
        embedding=tuple(ends["embedding"]),
        head=tuple(ends["head"]),
        others=tuple(ends["others"]),
        tied=not any(tensor.shard == "vocab" for tensor in ends["head"]),
        hidden=hidden,
        vocab=config.count("vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        max_context=config.count("max_position_embeddings", default=2048),
        dtype=outline.dtype,
        quantization=outline.quantization.name,
        more=MORE,
        assumed=(
            *outline.assumed,
            f"{outline.architecture or 'this architecture'} is not known: sizes are the "
            "checkpoint's, matrices are taken to be divided by tensor parallelism, vectors and "
            "routers to be whole on every rank",
            "what its layers cache is read from the usual keys of its configuration",
        ),
    )


def _tensor(name: str, stored: Stored, heads: int, experts: int) -> Tensor:
    if EXPERT.search(f".{name}") and experts > 1:
        units = max(stored.shape, default=1)
        return Tensor(name, stored.elements, stored.bytes, "experts", "experts", units, experts)
    role: Role = "attention" if "attn" in name or "attention" in name else "mlp"
    if len(stored.shape) < 2 or REPLICATED.search(name):
        return Tensor(name, stored.elements, stored.bytes, "replicated", "norm")
    units = heads if role == "attention" else max(stored.shape)
    return Tensor(name, stored.elements, stored.bytes, "column", role, units)


def _end(name: str) -> str:
    if re.search(r"embed_tokens|wte|word_embeddings", name):
        return "embedding"
    return "head" if re.search(r"lm_head|output\.weight|(?:^|\.)norm\.", name) else "others"


def _end_tensor(name: str, stored: Stored, end: str) -> Tensor:
    wide = len(stored.shape) == 2 and end != "others"
    roles: dict[str, Role] = {"embedding": "embedding", "head": "head"}
    role = roles.get(end, "vision")
    shard: Shard = "vocab" if wide else "replicated"
    units = stored.shape[0] if wide else 1
    return Tensor(name, stored.elements, stored.bytes, shard, role, units)
