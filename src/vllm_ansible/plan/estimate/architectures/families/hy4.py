"""Hy4: sparse latent attention with a gate and sinks, experts, several streams of residuals.

Read from vLLM 0.32's `vllm.models.hy_v4`.
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.config import Settings
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
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

# Every so many layers choose their tokens, from the second on, where nothing says which.
EVERY = 4


def hy4(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder; a layer without an indexer shares the choice of one before it."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    feeds = _listed(config, "mlp_layer_types", layers) or ["dense"] + ["sparse"] * (layers - 1)
    indexes = _listed(config, "indexer_types", layers) or [
        "full" if index == 0 or index % EVERY == 1 else "shared" for index in range(layers)
    ]
    gates = {"elementwise": config.count("v_head_dim"), "headwise": 1}
    gate = gates.get(config.text("gating_type") or "elementwise", 0)
    whole = replace(
        latent(config),
        gate=gate if config.flag("gated_mla", True) else 0,
        sinks=config.flag("learnable_sink", True),
    )
    choosing = replace(whole, indexer=indexer(config))
    dense = Dense(hidden, config.count("intermediate_size"))
    experts = replace(deepseek_experts(config), router_width=4, score_bias=True)
    streams = config.count("hc_mult", default=4) if config.flag("enable_ihc", True) else 0
    # A stream is weighed before and after a block, by all streams.
    singles = {
        f"hc_{part}_layer": 2 * streams * (streams * hidden + 1) + 2
        for part in ("attn", "mlp")
        if streams
    }
    blocks = [
        Block(
            choosing if indexes[index] == "full" else whole,
            (experts if feeds[index] == "sparse" else dense,),
            singles=singles,
        )
        for index in range(layers)
    ]
    parts = Parts(outline.quantization, "")
    joined = streams * (streams * hidden + 1) + 1
    head = [parts.vector("hc_head", joined, width=4)] if streams else []
    outline = replace(outline, rotary_sizes=(config.count("qk_rope_head_dim"),))
    return decoder(outline, blocks, others=others, head=head, buffers=(choices(config),))


def _listed(config: Settings, name: str, layers: int) -> list[str]:
    """Return what a configuration lists for each layer, nothing where it does not."""
    listed = [str(one) for one in config.items(name)]
    if listed and len(listed) < layers:
        raise config.problem(f"{name} names {len(listed)} layers of {layers}")
    return listed
