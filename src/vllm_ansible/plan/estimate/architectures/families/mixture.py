"""Decoders of grouped-query attention with experts: Mixtral, Qwen MoE, GLM, MiniMax, gpt-oss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.attention import (
    BlockIndexer,
    BlockSparse,
    QkNorm,
)
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense, Experts
from vllm_ansible.plan.estimate.architectures.families.llama import (
    QWEN2,
    QWEN3,
    Traits,
    grouped,
    head_size,
    rotated,
    windows,
)
from vllm_ansible.plan.estimate.architectures.families.parts import Parts
from vllm_ansible.plan.estimate.architectures.model import Model, Role, Tensor

ENDS: tuple[Role, ...] = ("embedding", "norm", "head")
FeedForward = Callable[[int], Dense | Experts]


def _mixture(
    outline: Outline, traits: Traits, feed: FeedForward, others: tuple[Tensor, ...] = ()
) -> Model:
    config = outline.config
    blocks = [
        Block(grouped(config, traits, window), (feed(index),), traits.norms, sums=traits.sums)
        for index, window in enumerate(windows(config, traits))
    ]
    outline = replace(
        outline,
        everywhere=traits.everywhere,
        tied_by_default=traits.tied_by_default,
        rotary_sizes=outline.rotary_sizes or (rotated(config, head_size(config)),),
    )
    return decoder(outline, blocks, others=others)


def plain_dense(config: Settings, key: str = "intermediate_size") -> Dense:
    """Return the dense block of the layers that have no experts."""
    return Dense(config.count("hidden_size"), config.count(key))


def mixtral(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Mixtral: experts in every layer, the router in the model's precision."""
    config = outline.config
    experts = Experts(
        config.count("hidden_size"),
        config.count("intermediate_size"),
        config.count("num_local_experts"),
        config.count("num_experts_per_tok"),
        module="block_sparse_moe",
    )
    traits = Traits(qkv_bias=False, output_bias=False, sliding="always", everywhere=ENDS)
    return _mixture(outline, traits, lambda index: experts, others)


def phi_moe(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Phi-3.5-MoE: as Mixtral, with biases, norms that have one, and one in the head."""
    config = outline.config
    experts = Experts(
        config.count("hidden_size"),
        config.count("intermediate_size"),
        config.count("num_local_experts"),
        config.count("num_experts_per_tok"),
        module="block_sparse_moe",
    )
    # A norm of mean and variance has a weight and a bias.
    traits = Traits(qkv_bias=True, output_bias=True, sliding="none", norms=4)
    parts = Parts(outline.quantization, "")
    head = [parts.vector("norm.bias", config.count("hidden_size"))]
    if config.flag("lm_head_bias", True):
        head.append(parts.vector("lm_head.bias", config.count("vocab_size"), "head"))
    blocks = [
        Block(grouped(config, traits), (experts,), traits.norms) for _ in range(layer_count(config))
    ]
    outline = replace(outline, rotary_sizes=(rotated(config, head_size(config)),))
    return decoder(outline, blocks, others=others, head=head)


def qwen_experts(config: Settings) -> Experts:
    """Return the experts of Qwen2-MoE, Qwen3-MoE, Qwen3-Next and Qwen3.5."""
    shared = config.size("shared_expert_intermediate_size")
    hidden = config.count("hidden_size")
    block = Dense(hidden, shared, module="mlp.shared_expert", role="shared_expert")
    return Experts(
        hidden,
        config.count("moe_intermediate_size"),
        config.count("num_experts", "num_local_experts"),
        config.count("num_experts_per_tok"),
        shared=block if shared else None,
        shared_gate=bool(shared),
    )


def qwen_feed(config: Settings) -> FeedForward:
    """Return the rule by which a Qwen layer has experts or one dense block."""
    step = config.count("decoder_sparse_step", default=1)
    left_out = set(config.numbers("mlp_only_layers"))
    experts = qwen_experts(config)

    def feed(index: int) -> Dense | Experts:
        if index in left_out or (index + 1) % step:
            return plain_dense(config)
        return experts

    return feed


def qwen_moe(traits: Traits, outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Qwen2-MoE or Qwen3-MoE."""
    return _mixture(outline, replace(traits, everywhere=ENDS), qwen_feed(outline.config), others)


qwen2_moe = partial(qwen_moe, QWEN2)
qwen3_moe = partial(qwen_moe, QWEN3)


def minimax(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return MiniMax-M2: norms over all heads, whose squares ranks add up, the router in fp32."""
    config = outline.config
    experts = Experts(
        config.count("hidden_size"),
        config.count("intermediate_size"),
        config.count("num_local_experts"),
        config.count("num_experts_per_tok"),
        router_width=4,
        score_bias=config.flag("use_routing_bias"),
        module="block_sparse_moe",
    )
    traits = Traits(output_bias=False, qk_norm="full", sliding="none", sums=3)
    part = config.size("rotary_dim", head_size(config))
    outline = replace(outline, rotary_sizes=(part,))
    return _mixture(outline, traits, lambda index: experts, others)


def bailing(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Ling and Ring (BailingMoE), and Sarvam-30B, which is of their class."""
    config = outline.config
    experts, first = shared_experts(config), config.size("first_k_dense_replace")
    bias = config.flag("use_bias")
    traits = Traits(
        qkv_bias=bias or config.flag("use_qkv_bias"),
        output_bias=bias,
        qk_norm="head" if config.flag("use_qk_norm") else "none",
        sliding="none",
    )
    part = config.size("rotary_dim")
    outline = replace(outline, rotary_sizes=(part,)) if part else outline
    return _mixture(
        outline, traits, lambda index: experts if index >= first else plain_dense(config), others
    )


def shared_experts(config: Settings) -> Experts:
    """Return experts by the names that Bailing and Sarvam have for them."""
    hidden, inner = config.count("hidden_size"), config.count("moe_intermediate_size")
    several = config.size("num_shared_experts")
    wide = config.size("moe_shared_expert_intermediate_size", inner) * several
    shared = Dense(hidden, wide, module="mlp.shared_experts", role="shared_expert")
    return Experts(
        hidden,
        inner,
        config.count("num_experts"),
        config.count("num_experts_per_tok"),
        shared=shared if wide else None,
        router_width=4 if config.text("router_dtype") == "fp32" else 0,
        score_bias=config.flag("moe_router_enable_expert_bias"),
    )


def minimax_m3(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return MiniMax-M3: dense first, then experts; blocks of tokens are chosen by an indexer."""
    config = outline.config
    hidden = config.count("hidden_size")
    inner, several = config.count("intermediate_size"), config.size("n_shared_experts")
    module = "block_sparse_moe"
    shared = Dense(hidden, inner * several, module=f"{module}.shared_experts", role="shared_expert")
    experts = Experts(
        hidden,
        inner,
        config.count("num_local_experts"),
        config.count("num_experts_per_tok"),
        shared=shared if several else None,
        router_width=4,
        score_bias=config.flag("use_routing_bias"),
        module=module,
    )
    traits = Traits(output_bias=False, qk_norm="head", sliding="none")
    plain = grouped(config, traits)
    sparse = config.section("sparse_attention_config") or Settings({}, config.where)
    chooses = sparse.numbers("sparse_attention_freq")
    chosen = BlockSparse(
        **{name: getattr(plain, name) for name in plain.__dataclass_fields__},
        indexer=BlockIndexer(
            sparse.count("sparse_num_index_heads", default=1),
            sparse.count("sparse_index_dim", default=128),
        ),
    )
    layers = layer_count(config)
    routed = config.of_layers("moe_layer_freq", layers, 0, 1, needed=True)
    dense = Dense(hidden, config.count("dense_intermediate_size"))
    blocks = [
        Block(
            chosen if index < len(chooses) and chooses[index] else plain,
            (experts if routed[index] else dense,),
        )
        for index in range(layers)
    ]
    note = "rates are those of attention to all tokens, of which MiniMax-M3 chooses some"
    outline = replace(
        outline,
        rotary_sizes=(config.size("rotary_dim", head_size(config)),),
        assumed=(*outline.assumed, *((note,) if any(chooses) else ())),
    )
    return decoder(outline, blocks, others=others)


def glm(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return GLM-4.5 and its successors with grouped attention."""
    config = outline.config
    hidden, inner = config.count("hidden_size"), config.count("moe_intermediate_size")
    several = config.size("n_shared_experts")
    shared = Dense(hidden, inner * several, module="mlp.shared_experts", role="shared_expert")
    experts = Experts(
        hidden,
        inner,
        config.count("n_routed_experts"),
        config.count("num_experts_per_tok"),
        shared=shared if several else None,
        router_width=4,
        score_bias=True,
    )
    first = config.size("first_k_dense_replace")
    norm: QkNorm = "head" if config.flag("use_qk_norm") else "none"
    return _mixture(
        outline,
        Traits(output_bias=False, qk_norm=norm, sliding="none"),
        lambda index: experts if index >= first else plain_dense(config),
        others,
    )


def gpt_oss(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return gpt-oss: alternating windows, sinks, biases, experts in mxfp4 with padded kernels."""
    config = outline.config
    hidden = config.count("hidden_size")
    packed = outline.quantization.experts.name == "mxfp4"
    experts = Experts(
        hidden,
        config.count("intermediate_size"),
        config.count("num_local_experts"),
        config.count("num_experts_per_tok", "experts_per_token"),
        router_bias=True,
        expert_bias=True,
        padding="mxfp4" if packed else "",
    )
    traits = Traits(qkv_bias=True, output_bias=True, everywhere=ENDS)
    window = config.count("sliding_window", default=128)
    blocks = [
        Block(
            replace(grouped(config, traits, None if index % 2 else window), sinks=True),
            (experts,),
        )
        for index in range(layer_count(config))
    ]
    note = (
        "the experts' mxfp4 kernels are taken to be vLLM's default for the device: Triton's on "
        "Hopper, which pad least, else Marlin's or TensorRT-LLM's",
    )
    outline = replace(
        outline,
        everywhere=ENDS,
        rotary_sizes=(head_size(config),),
        rotary_width=4,
        assumed=outline.assumed + (note if packed else ()),
    )
    return decoder(outline, blocks, others=others)


def llama4(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return Llama 4: experts in every n-th layer, each beside a shared block.

    Chunked attention keeps all tokens: the engine turns its hybrid cache off for it.
    """
    config = outline.config
    hidden, inner = config.count("hidden_size"), config.count("intermediate_size")
    shared = Dense(hidden, inner, module="feed_forward.shared_expert", role="shared_expert")
    experts = Experts(
        hidden,
        inner,
        config.count("num_local_experts"),
        config.count("num_experts_per_tok"),
        shared=shared,
        module="feed_forward",
    )
    step = config.size("interleave_moe_layer_step", 1)
    wide = Dense(hidden, config.count("intermediate_size_mlp"), module="feed_forward")
    traits = Traits(qkv_bias=False, output_bias=False, sliding="none")
    return _mixture(
        outline,
        traits,
        lambda index: experts if step and (index + 1) % step == 0 else wide,
        others,
    )
