"""Layers that only propose tokens: the checkpoint's own ones, for speculative decoding (MTP)."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

# What configurations call the number of such layers.
KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def next_layers(text: Settings) -> int:
    """Return how many layers of a checkpoint propose tokens."""
    return next((size for key in KEYS if (size := text.size(key))), 0)


def with_drafts(model: Model) -> Model:
    """Return the model with the layers that propose tokens, as vLLM's MTP holds them.

    Each is like the last layer, with a product that joins a token's embedding and the hidden state
    before it. Embedding and head are the model's own. Raises nothing for a model without any.
    """
    joined = 2 * model.hidden * model.hidden
    product = Tensor("eh_proj.weight", joined, joined * 2, "replicated", "attention")
    last = model.layers[-1]
    drafts = tuple(
        replace(last, index=len(model.layers) + place, tensors=(*last.tensors, product))
        for place in range(model.next_layers)
    )
    return replace(model, drafts=drafts)
