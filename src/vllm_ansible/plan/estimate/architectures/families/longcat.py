"""LongCat-Flash: two latent attentions and two dense blocks a layer, experts beside them.

Read from vLLM 0.32's `longcat_flash.py` and `longcat_flash_ngram.py`. The router also chooses
among `zero_expert_num` experts that do nothing: of the chosen of a token only the part is
multiplied that experts are of all. Flash-Lite looks up n-grams beside tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Latent
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    MOST_LAYERS,
    VOCABULARY_PADDING,
    Block,
    Outline,
    decoder,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.latent import latent
from vllm_ansible.plan.estimate.architectures.families.parts import Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Model, Tensor

# Both attentions, both blocks and the experts are added up over tensor ranks apart.
SUMS = 5


@frozen
class Twice:
    """Two attentions of one layer, each with weights and a cache of its own."""

    attention: Latent

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield those of both."""
        for number in range(2):
            yield from replace(self.attention, module=f"self_attn.{number}").tensors(parts)

    def cache(self) -> KvCache:
        """Return the entry of the one, and beside it that of the other."""
        entry = self.attention.cache()
        return replace(entry, beside=entry)


def longcat(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; later configurations count the attentions as hidden layers."""
    config = outline.config
    hidden = config.count("hidden_size")
    layers = config.count("num_layers", limit=MOST_LAYERS)
    inner = config.count("ffn_hidden_size", "intermediate_size")
    dense = tuple(Dense(hidden, inner, module=f"mlps.{number}") for number in range(2))
    block = Block(Twice(latent(config)), (*dense, _experts(config)), norms=4, sums=SUMS)
    outline = replace(outline, rotary_sizes=(config.count("qk_rope_head_dim"),))
    return decoder(outline, [block] * layers, others=others, embedding=_ngrams(outline))


def _ngrams(outline: Outline) -> Iterator[Tensor]:
    """Yield the tables of n-grams, one after the other in one, and what projects their rows."""
    config = outline.config
    if "ngram_vocab_size_ratio" not in config:
        return
    tables = config.count("emb_split_num", limit=64) * (config.count("emb_neighbor_num") - 1)
    if not 0 < tables <= config.count("hidden_size"):
        raise config.problem(f"{tables} tables of n-grams cannot share the hidden size")
    hidden, each = config.count("hidden_size"), config.fraction("ngram_vocab_size_ratio", 1.0)
    each *= config.count("vocab_size")
    rows = sum(int(each + 2 * table + 1) for table in range(tables))
    rows = ceil(rows / VOCABULARY_PADDING) * VOCABULARY_PADDING
    wide = hidden // tables
    parts = Parts(outline.quantization, "")
    yield parts.vector("oe_embedder", rows * wide, "embedding", Cut("vocab", rows))
    yield parts.vector("oe_projection", tables * wide * hidden, "embedding")


def _experts(config: Settings) -> Experts:
    count, nothing = config.count("n_routed_experts"), config.size("zero_expert_num")
    chosen = config.count("moe_topk", "num_experts_per_tok")
    return Experts(
        config.count("hidden_size"),
        config.count("expert_ffn_hidden_size", "moe_intermediate_size"),
        count,
        max(1, round(chosen * count / (count + nothing))),
        router_width=4,
        score_bias=True,
        nothing=nothing,
    )
