"""Draft models of their own: EAGLE and EAGLE-3 beside Llama and Qwen3.

Read from vLLM 0.32's `llama_eagle.py`, `llama_eagle3.py` and `qwen3_eagle3.py`. The embedding is
the target's; EAGLE-3 has a head of its own, over fewer words.
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
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense
from vllm_ansible.plan.estimate.architectures.families.llama import (
    QWEN3,
    Traits,
    grouped,
    head_size,
)
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Parts
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

LLAMA = Traits(sliding="none")
# Layers of the target whose states EAGLE-3 takes, where the configuration names none.
TAKEN = 3


@frozen
class Joined(Grouped):
    """Attention over a token's embedding and the target's state beside each other."""

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield projections from twice the hidden size, and the output's back to one."""
        plain = {name: getattr(self, name) for name in Grouped.__dataclass_fields__}
        wide = Grouped(**{**plain, "hidden": 2 * self.hidden})
        out = f"{self.module}.o_proj"
        yield from (one for one in wide.tensors(parts) if not one.name.startswith(out))
        narrow = Grouped(**plain)
        yield from (one for one in narrow.tensors(parts) if one.name.startswith(out))


def eagle3(traits: Traits, outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the draft model; of its layers the first joins."""
    config = outline.config
    hidden, own = config.count("hidden_size"), grouped(config, traits)
    joined = Joined(**{name: getattr(own, name) for name in Grouped.__dataclass_fields__})
    attends = [joined, *[own] * (layer_count(config) - 1)]
    words = config.count("draft_vocab_size", default=config.count("vocab_size"))
    taken = config.section("eagle_config") or config
    states = len(taken.numbers("eagle_aux_hidden_state_layer_ids")) or TAKEN
    inputs = states * _target(outline)[0]
    parts = Parts(outline.quantization, "")
    joins = parts.linear("fc", inputs, hidden, WHOLE, "attention")
    table = Tensor("draft_id_to_target_id", words, words * 8, "replicated", "other")
    return _draft(outline, attends, words, norms=3, more=(*joins, table))


def eagle(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the first EAGLE's draft model, whose head is the target's."""
    config = outline.config
    attends = [grouped(config, LLAMA)] * layer_count(config)
    hidden = config.count("hidden_size")
    parts = Parts(outline.quantization, "")
    joins = parts.linear("fc", 2 * hidden, hidden, WHOLE, "attention")
    made = _draft(outline, attends, config.count("vocab_size"), norms=2, more=tuple(joins))
    return replace(made, head=tuple(one for one in made.head if one.role != "head"))


def _draft(
    outline: Outline, attends: list[Grouped], words: int, norms: int, more: tuple[Tensor, ...]
) -> Model:
    config = outline.config
    feed = Dense(
        config.count("hidden_size"), config.count("intermediate_size"), bias=config.flag("mlp_bias")
    )
    blocks = [Block(one, (feed,), norms if not index else 2) for index, one in enumerate(attends)]
    target = _target(outline)
    values = {**config.values, "vocab_size": words, "tie_word_embeddings": False}
    outline = replace(
        outline, config=Settings(values, config.where), rotary_sizes=(head_size(config),)
    )
    return replace(decoder(outline, blocks, others=more), embedding=(), target=target)


def _target(outline: Outline) -> tuple[int, int]:
    config = outline.config
    hidden = config.count("hidden_size")
    return config.count("target_hidden_size", default=hidden), config.count("vocab_size")


def eagle3_llama(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return EAGLE-3 with Llama's layer, also beside other targets."""
    return eagle3(LLAMA, outline, others)


def eagle3_qwen3(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return EAGLE-3 with Qwen3's layer, which norms queries and keys."""
    return eagle3(QWEN3, outline, others)
