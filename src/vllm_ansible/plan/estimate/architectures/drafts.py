"""Layers that only propose tokens: the checkpoint's own ones (MTP), or a draft model (EAGLE)."""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.registry import DRAFTS
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor
from vllm_ansible.problem import PlanError, Problem

# What configurations call the number of such layers.
KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def next_layers(text: Settings) -> int:
    """Return how many layers of a checkpoint propose tokens by the method `mtp`.

    DeepSeek-V4.1's are of another one (DSpark), and LongCat's have no experts: both are smaller
    than the model's own layers, and not counted.
    """
    if text.size("dspark_block_size") or "zero_expert_num" in text:
        return 0
    return next((size for key in KEYS if (size := text.size(key))), 0)


def with_drafts(model: Model, tokens: int = 1) -> Model:
    """Return the model with the layers that propose so many tokens, as vLLM's MTP holds them.

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
    return replace(model, drafts=drafts, proposed=tokens)


def with_draft_model(model: Model, draft: Model, tokens: int = 1) -> Model:
    """Return the model with the layers of a draft model, on its last stage as vLLM has them.

    The embedding is the target's. What is in no layer of the draft counts with its first one.
    Raises PlanError where it is no draft model, or one of a target of other sizes.
    """
    if draft.architecture not in DRAFTS:
        raise PlanError(
            Problem(
                f"{draft.name} is no draft model that is known here",
                f"one of {', '.join(sorted(DRAFTS))}",
                draft.architecture,
                fix="name an EAGLE model; a checkpoint's own layers are counted by --mtp",
            )
        )
    if draft.target not in (None, (model.hidden, model.vocab)):
        hidden, vocab = draft.target
        raise PlanError(
            Problem(
                f"{draft.name} is a draft model of another target than {model.name}",
                f"a hidden size of {model.hidden} and a vocabulary of {model.vocab}",
                f"{hidden} and {vocab}",
                fix="name the EAGLE model that was made for this one",
            )
        )
    ends = (*draft.head, *draft.others, *draft.buffers)
    first = len(model.layers) + len(model.drafts)
    layers = tuple(
        replace(layer, index=first + place, tensors=(*layer.tensors, *(() if place else ends)))
        for place, layer in enumerate(draft.layers)
    )
    return replace(model, drafts=(*model.drafts, *layers), proposed=tokens)
