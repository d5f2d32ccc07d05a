"""Decoders of grouped-query attention with a dense block: Llama, Qwen, Gemma, Phi, GLM, Olmo."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings, brief
from vllm_ansible.plan.estimate.architectures.families.attention import Grouped, QkNorm
from vllm_ansible.plan.estimate.architectures.families.decoder import (
    Block,
    Outline,
    decoder,
    layer_count,
)
from vllm_ansible.plan.estimate.architectures.families.feed_forward import Dense
from vllm_ansible.plan.estimate.architectures.model import Model, Role, Tensor
from vllm_ansible.plan.estimate.architectures.usual import usual


@frozen
class Traits:
    """In what the classes of this family differ.

    A bias of None is what `attention_bias` says. `sliding` says when `sliding_window` holds:
    "always" for every layer, "flagged" if `use_sliding_window`, "typed" for the layers that
    `layer_types` names. `output_gate` adds one as wide as the queries. `sums` is how often tensor
    ranks add up what they have, where it is not twice.
    """

    qkv_bias: bool | None = None
    output_bias: bool | None = None
    qk_norm: QkNorm = "none"
    norms: int = 2
    sliding: str = "typed"
    tied_by_default: bool = False
    everywhere: tuple[Role, ...] = ()
    gated: bool = True
    output_gate: bool = False
    sums: int | None = None


ATTENTION = "full_attention", "sliding_attention"


def head_size(config: Settings) -> int:
    """Return the size of one head, given or hidden size over heads."""
    heads = config.count("num_attention_heads")
    return config.count("head_dim", default=max(1, config.count("hidden_size") // heads))


def windows(config: Settings, traits: Traits) -> tuple[int | None, ...]:
    """Return for each layer the tokens it looks back on, None for all."""
    layers, window = layer_count(config), config.size("sliding_window") or None
    if traits.sliding == "none" or window is None:
        return (None,) * layers
    if kinds := config.of_layers("layer_types", layers, *ATTENTION):
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if traits.sliding == "always":
        return (window,) * layers
    if traits.sliding == "flagged":
        first = config.size("max_window_layers") if config.flag("use_sliding_window") else layers
        return tuple(window if index >= first else None for index in range(layers))
    letters = config.values.get("sliding_window_pattern")
    if isinstance(letters, str) and letters:  # EXAONE 4: local or global
        if set(letters) - set("LG"):
            raise config.problem(f"sliding_window_pattern is {brief(letters)}", "letters L and G")
        return tuple(
            window if letters[index % len(letters)] == "L" else None for index in range(layers)
        )
    every = config.count("sliding_window_pattern", default=2)
    return tuple(None if (index + 1) % every == 0 else window for index in range(layers))


def grouped(config: Settings, traits: Traits, window: int | None = None) -> Grouped:
    """Return the attention of one layer."""
    bias = any(config.flag(name) for name in ("attention_bias", "qkv_bias", "use_bias"))
    heads = config.count("num_attention_heads")
    return Grouped(
        hidden=config.count("hidden_size"),
        heads=heads,
        kv_heads=config.count("num_key_value_heads", default=heads),
        head_size=head_size(config),
        qkv_bias=bias if traits.qkv_bias is None else traits.qkv_bias,
        output_bias=bias if traits.output_bias is None else traits.output_bias,
        qk_norm=traits.qk_norm,
        gate=traits.output_gate,
        window=window,
    )


def rotated(config: Settings, size: int) -> int:
    """Return how many elements of a head are rotated."""
    rope = config.section("rope_parameters")
    part = rope.fraction("partial_rotary_factor", 1.0) if rope else 1.0
    return int(size * config.fraction("partial_rotary_factor", part))


def dense(traits: Traits, outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return a model whose every layer is grouped attention and one gated block."""
    config = outline.config
    feed = Dense(
        config.count("hidden_size"),
        config.count("intermediate_size"),
        gated=traits.gated,
        bias=config.flag("mlp_bias"),
    )
    blocks = [
        Block(grouped(config, traits, window), (feed,), traits.norms)
        for window in windows(config, traits)
    ]
    outline = replace(
        outline,
        everywhere=traits.everywhere,
        tied_by_default=traits.tied_by_default,
        rotary_sizes=(rotated(config, head_size(config)),),
    )
    return decoder(outline, blocks, others=others)


def chatglm(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return ChatGLM or GLM-4-9B under the names of their own code, as `chatglm.py` builds them."""
    config = usual(outline.config)
    if "vision_config" in config:
        raise config.problem("vLLM's ChatGLMForCausalLM takes no model with a vision_config")
    biased = config.flag("add_bias_linear")
    values = {
        **config.values,
        "vocab_size": config.count("padded_vocab_size"),
        "mlp_bias": biased,
        "partial_rotary_factor": 0.5,
    }
    traits = Traits(
        qkv_bias=biased or config.flag("add_qkv_bias"),
        output_bias=biased,
        sliding="none",
        everywhere=("embedding", "norm", "head"),
    )
    return dense(traits, replace(outline, config=Settings(values, config.where)), others)


QWEN2 = Traits(qkv_bias=True, output_bias=False, sliding="flagged")
QWEN3 = Traits(output_bias=False, qk_norm="head", sliding="flagged")
GEMMA2 = Traits(norms=4, tied_by_default=True, everywhere=("embedding", "norm"))

llama = partial(dense, Traits(sliding="none"))
mistral = partial(dense, Traits(qkv_bias=False, output_bias=False, sliding="always"))
phi3 = partial(dense, Traits(qkv_bias=False, output_bias=False, sliding="none"))
qwen2 = partial(dense, QWEN2)
qwen3 = partial(dense, QWEN3)
gemma = partial(dense, Traits(tied_by_default=True, sliding="none"))
gemma2 = partial(dense, GEMMA2)
gemma3 = partial(dense, replace(GEMMA2, qk_norm="head"))
# In 0.32 vLLM runs some of these by its Transformers backend, which divides them the same way.
PLAIN = Traits(sliding="none")
seed_oss = partial(dense, replace(PLAIN, output_bias=False))
ernie = partial(dense, replace(PLAIN, tied_by_default=True))
smollm3 = partial(dense, replace(PLAIN, tied_by_default=True))
glm = partial(dense, replace(PLAIN, output_bias=False))
glm4 = partial(dense, replace(PLAIN, output_bias=False, norms=4))
hunyuan = partial(dense, replace(PLAIN, qk_norm="head"))
arcee = partial(dense, replace(PLAIN, gated=False))
apertus = partial(dense, replace(PLAIN, gated=False, qk_norm="head"))
exaone4 = partial(dense, Traits(qkv_bias=False, output_bias=False, qk_norm="head"))
# Norms of queries and keys have no weights (vLLM 0.32's `muse_glimmer.py`).
muse = partial(dense, Traits(qkv_bias=False, output_bias=False, norms=4, output_gate=True))
olmo = partial(dense, Traits(qk_norm="full"))
