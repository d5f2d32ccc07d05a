"""Decoders that mix attention with a kept state: Qwen3-Next, Qwen3.5, Nemotron-H, Jamba."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import (
    QWEN3,
    grouped,
    head_size,
    rotated,
)
from vllm_ansible.plan.estimate.architectures.families.mixture import ENDS, plain_dense, qwen_feed
from vllm_ansible.plan.estimate.architectures.families.recurrent import (
    DeltaNet,
    FirstStateSpace,
    StateSpace,
)
from vllm_ansible.plan.estimate.architectures.model import Model, Role, Tensor


def _state_width(config: Settings, *names: str) -> int:
    word = next((config.text(name) for name in names if config.text(name)), "float32")
    return 4 if word in ("float32", "auto") else 2


def qwen_hybrid(
    everywhere: tuple[Role, ...], outline: Outline, others: tuple[Tensor, ...] = ()
) -> Model:
    """Return Qwen3-Next or Qwen3.5: every n-th layer attends, the others keep a state."""
    blocks = qwen_blocks(outline)
    config = outline.config
    outline = replace(
        outline, everywhere=everywhere, rotary_sizes=(rotated(config, head_size(config)),)
    )
    return decoder(outline, blocks, others=others)


def qwen_blocks(outline: Outline, *others: str) -> list[Block]:
    """Return the layers. others: kinds of theirs that stand for full attention, too."""
    config = outline.config
    layers = layer_count(config)
    every = config.count("full_attention_interval", default=4)
    words = ("linear_attention", "full_attention", *others)
    kinds = config.of_layers("layer_types", layers, *words) or [
        "linear_attention" if (index + 1) % every else "full_attention" for index in range(layers)
    ]
    gate = config.flag("attn_output_gate", True)
    full = replace(grouped(config, QWEN3), gate=gate)
    linear = DeltaNet(
        hidden=config.count("hidden_size"),
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_size=config.count("linear_key_head_dim"),
        value_size=config.count("linear_value_head_dim"),
        kernel=config.count("linear_conv_kernel_dim"),
        state_width=_state_width(config, "mamba_ssm_dtype"),
    )
    dense = plain_dense(config) if "num_experts" not in config else None
    feed = qwen_feed(config) if dense is None else None
    return [
        Block(
            linear if kinds[index] == "linear_attention" else full,
            (feed(index) if feed else dense or plain_dense(config),),
        )
        for index in range(layers)
    ]


_NEXT: tuple[Role, ...] = ("embedding", "head")
_THREE_FIVE: tuple[Role, ...] = ("embedding",)
qwen3_next = partial(qwen_hybrid, _NEXT)
qwen3_5 = partial(qwen_hybrid, _THREE_FIVE)


def jamba(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Jamba: one layer of a period attends, without positions; some have experts."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    mixer = FirstStateSpace(
        hidden=hidden,
        inner=hidden * config.count("mamba_expand"),
        state=config.count("mamba_d_state"),
        kernel=config.count("mamba_d_conv"),
        step_rank=config.count("mamba_dt_rank"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", True),
        state_width=2,
    )
    full = replace(_attention(config), module="self_attn")
    dense = Dense(hidden, config.count("intermediate_size"), module="feed_forward")
    experts = Experts(
        hidden,
        config.count("intermediate_size"),
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        module="feed_forward",
    )
    attends = config.count("attn_layer_period"), config.size("attn_layer_offset")
    chooses = config.count("expert_layer_period"), config.size("expert_layer_offset")
    # Of one expert there is no router.
    several = experts.count > 1
    blocks = [
        Block(
            full if index % attends[0] == attends[1] else mixer,
            (experts if several and index % chooses[0] == chooses[1] else dense,),
        )
        for index in range(layers)
    ]
    return decoder(outline, blocks, others=others)


def nemotron(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Nemotron-H: each layer is a state space, experts, attention or dense (M, E, *, -)."""
    config = outline.config
    hidden, layers = config.count("hidden_size"), layer_count(config)
    pattern = _pattern(config)
    if len(pattern) != layers or set(pattern) - set("ME*-"):
        raise config.problem(
            f"layers_block_type or hybrid_override_pattern says {len(pattern)} of {layers} layers",
            "one of mamba, moe, attention, mlp, or of M, E, *, -, for each layer",
        )
    heads = config.count("mamba_num_heads") if "M" in pattern else 0
    makers = {
        "M": lambda: Block(_state_space(config, heads), (), 1),
        "*": lambda: Block(_attention(config), (), 1),
        "E": lambda: Block(None, (_experts(config),), 1),
        "-": lambda: Block(
            None,
            (Dense(hidden, config.count("intermediate_size"), gated=False, module="mixer"),),
            1,
        ),
    }
    made = {letter: makers[letter]() for letter in set(pattern)}
    outline = replace(outline, everywhere=ENDS, layers_at="backbone.layers")
    return decoder(outline, [made[letter] for letter in pattern], others=others)


def _pattern(config: Settings) -> str:
    """Return a letter for each layer; newer configurations list words instead."""
    words = {"linear_attention": "M", "moe": "E", "full_attention": "*", "mlp": "-"}
    named = config.kinds("layers_block_type") or config.kinds("layer_types")
    return "".join(words.get(str(one), "?") for one in named) or config.text(
        "hybrid_override_pattern"
    )


def _attention(config: Settings) -> Grouped:
    heads = config.count("num_attention_heads")
    return Grouped(
        hidden=config.count("hidden_size"),
        heads=heads,
        kv_heads=config.count("num_key_value_heads", default=heads),
        head_size=head_size(config),
        module="mixer",
    )


def _state_space(config: Settings, heads: int) -> StateSpace:
    return StateSpace(
        hidden=config.count("hidden_size"),
        heads=heads,
        head_size=config.count("mamba_head_dim"),
        groups=config.count("n_groups"),
        state=config.count("ssm_state_size"),
        kernel=config.count("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias", True),
        state_width=_state_width(config, "mamba_ssm_cache_dtype"),
    )


def _experts(config: Settings) -> Experts:
    hidden = config.count("hidden_size")
    several = config.size("n_shared_experts")
    inner = config.size("moe_shared_expert_intermediate_size") * several
    shared = Dense(hidden, inner, gated=False, module="mixer.shared_experts", role="shared_expert")
    return Experts(
        hidden,
        config.count("moe_intermediate_size"),
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        shared=shared if inner else None,
        gated=False,
        score_bias=True,
        latent=config.size("moe_latent_size"),
        module="mixer",
    )
