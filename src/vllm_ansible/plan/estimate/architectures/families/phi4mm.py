"""Phi-4-multimodal: Phi-4-mini with an image and an audio encoder that its class holds fixed.

Read from vLLM 0.32's `phi4mm.py`; sizes of the encoders are those of transformers' class. The
checkpoint's adapters are not loaded with the weights: an engine loads them as LoRA.
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ansible.plan.estimate.architectures.families.decoder import Outline
from vllm_ansible.plan.estimate.architectures.families.llama import phi3
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import Model, Tensor

# SigLIP's layers as far as the second last, 15,239,504 parameters each in 16 heads, its patches and
# positions, a norm, two projections to the decoder and two separators.
VISION_LAYERS, VISION_LAYER, VISION_HEADS = 26, 15_239_504, 16
VISION_ENDS = 1_858_176 + 2_304 + 12_976_128 + 2 * 3_072 + 2 * 1_152
# The conformer of 24 blocks, and its two pairs of projections.
AUDIO = 466_432_256
NOTE = "the checkpoint's adapters for images and speech are counted with --lora-slots alone"


def phi4mm(outline: Outline, others: tuple[Tensor, ...] = ()) -> Model:
    """Return the decoder and both encoders; the audio encoder is whole on every rank."""
    parts = Parts(outline.quantization, "embed_tokens_extend.")
    encoders = (
        parts.vector(
            "image_embed.layers",
            VISION_LAYERS * VISION_LAYER,
            "vision",
            Cut("column", VISION_HEADS),
        ),
        parts.vector("image_embed.ends", VISION_ENDS, "vision", WHOLE),
        parts.vector("audio_embed", AUDIO, "vision", WHOLE),
    )
    outline = replace(outline, tied_by_default=True, assumed=(*outline.assumed, NOTE))
    return phi3(outline, others=(*others, *encoders))
