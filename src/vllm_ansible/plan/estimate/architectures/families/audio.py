"""Audio towers: of Qwen3-Omni three convolutions before a transformer, and Whisper's encoder.

Read from vLLM 0.32's `qwen3_omni_moe_thinker.py`, `qwen2_audio.py` and `voxtral.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import Tensor

MOST_LAYERS = 1024
KERNEL = 3
HALVINGS = 3
# Frames that Voxtral joins to one, which its `params.json` names and `config.json` does not.
JOINED = 4


def _linear(
    parts: Parts, name: str, inputs: int, outputs: int, cut: Cut = WHOLE, bias: bool = True
) -> Iterator[Tensor]:
    yield parts.vector(f"audio.{name}", inputs * outputs, "vision", cut)
    if bias:
        split = cut if cut.shard == "column" else WHOLE
        yield parts.vector(f"audio.{name}.bias", outputs, "vision", split)


def tower(audio: Settings, parts: Parts) -> Iterator[Tensor]:
    """Yield the tensors of the tower and of its joint with the decoder."""
    hidden, inner = audio.count("d_model"), audio.count("encoder_ffn_dim")
    channels = audio.count("downsample_hidden_size")
    heads = audio.count("encoder_attention_heads")
    bins = audio.count("num_mel_bins")
    for _ in range(HALVINGS):
        bins = (bins + 1) // 2
    column, row = Cut("column", heads), Cut("row", heads)
    linear = partial(_linear, parts)

    for number in range(HALVINGS):
        inputs = (channels if number else 1) * KERNEL**2
        yield from linear(f"convolution.{number}", inputs, channels)
    yield from linear("conv_out", channels * bins, hidden, bias=False)
    for number in range(audio.count("encoder_layers", limit=MOST_LAYERS)):
        name = f"layers.{number}"
        yield from linear(f"{name}.qkv", hidden, 3 * hidden, column)
        yield from linear(f"{name}.out_proj", hidden, hidden, row)
        yield from linear(f"{name}.fc1", hidden, inner, column)
        yield from linear(f"{name}.fc2", inner, hidden, row)
        yield parts.vector(f"audio.{name}.norms", 4 * hidden, "vision")
    yield parts.vector("audio.ln_post", 2 * hidden, "vision")
    yield from linear("proj1", hidden, hidden)
    yield from linear("proj2", hidden, audio.count("output_dim"))


def whisper(style: str, audio: Settings, text_hidden: int, parts: Parts) -> Iterator[Tensor]:
    """Yield Whisper's encoder and its joint with the decoder.

    Qwen2-Audio has the encoder of transformers, whole on each rank; of Voxtral vLLM's own is
    divided over tensor ranks, with positions in fp32 and a bias for keys, too.
    """
    own = style == "VOXTRAL"
    hidden = audio.count("d_model", "hidden_size", default=1280)
    inner = audio.count("encoder_ffn_dim", "intermediate_size", default=5120)
    heads = audio.count("encoder_attention_heads", "num_attention_heads", default=20)
    layers = audio.count("encoder_layers", "num_hidden_layers", default=32, limit=MOST_LAYERS)
    positions = audio.count("max_source_positions", default=1500)
    column, row = (Cut("column", heads), Cut("row", heads)) if own else (WHOLE, WHOLE)
    linear = partial(_linear, parts)
    yield from linear("conv1", KERNEL * audio.count("num_mel_bins", default=128), hidden)
    yield from linear("conv2", KERNEL * hidden, hidden)
    yield parts.vector("audio.positions", positions * hidden, "vision", width=4 if own else 0)
    for number in range(layers):
        name = f"layers.{number}"
        yield from linear(f"{name}.qkv", hidden, 3 * hidden, column, bias=False)
        biases = (3 if own else 2) * hidden
        yield parts.vector(f"audio.{name}.qkv.bias", biases, "vision", column)
        yield from linear(f"{name}.out_proj", hidden, hidden, row)
        yield from linear(f"{name}.fc1", hidden, inner, column)
        yield from linear(f"{name}.fc2", inner, hidden, row)
        yield parts.vector(f"audio.{name}.norms", 4 * hidden, "vision")
    yield parts.vector("audio.layer_norm", 2 * hidden, "vision")
    if own:
        joined = JOINED * hidden
        yield from linear("adapter.w_in", joined, text_hidden, bias=False)
        yield from linear("adapter.w_out", text_hidden, text_hidden, bias=False)
    else:
        yield from linear("projector", hidden, text_hidden)
