"""The audio tower of Qwen3-Omni: a transformer over frames, after three convolutions.

Read from vLLM 0.32's `qwen3_omni_moe_thinker.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import Tensor

MOST_LAYERS = 1024
KERNEL = 3
HALVINGS = 3


def tower(audio: Settings, parts: Parts) -> Iterator[Tensor]:
    """Yield the tensors of the tower and of its joint with the decoder."""
    hidden, inner = audio.count("d_model"), audio.count("encoder_ffn_dim")
    channels = audio.count("downsample_hidden_size")
    heads = audio.count("encoder_attention_heads")
    bins = audio.count("num_mel_bins")
    for _ in range(HALVINGS):
        bins = (bins + 1) // 2
    column, row = Cut("column", heads), Cut("row", heads)

    def linear(
        name: str, inputs: int, outputs: int, cut: Cut = WHOLE, bias: bool = True
    ) -> Iterator[Tensor]:
        yield parts.vector(f"audio.{name}", inputs * outputs, "vision", cut)
        if bias:
            split = cut if cut.shard == "column" else WHOLE
            yield parts.vector(f"audio.{name}.bias", outputs, "vision", split)

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
