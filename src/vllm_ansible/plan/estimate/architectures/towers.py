"""Options of the engine that change what a model's vision tower takes.

Read from vLLM 0.32: `_mark_tower_model` skips towers of which no input is let in, and a tower in
data mode is whole on every rank.
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.model import Model


def with_tower(model: Model, *, text_only: bool = False, encoder_data: bool = False) -> Model:
    """Return the model without its tower (text only), or with it whole on every rank (data mode).

    Buffers of the decoder stay: the engine allocates them all the same.
    """
    if text_only:
        return replace(model, others=tuple(one for one in model.others if one.role != "vision"))
    if encoder_data:
        whole = tuple(
            replace(one, shard="replicated", units=1) if one.role == "vision" else one
            for one in model.others
        )
        return replace(model, others=whole)
    return model
