"""Vision towers: transformers over patches, and what joins them to the decoder.

Sizes are read from `vision_config`; the shapes are vLLM 0.32's of Qwen, Pixtral and MoonViT. Where
a tower is known only in outline the estimate is said to be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import Tensor

MOST_LAYERS = 1024
# What Meta published; the configurations of Llama 4 leave it to defaults of the library.
LLAMA4 = {
    "hidden_size": 1408,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_hidden_layers": 34,
    "patch_size": 14,
    "num_position_embeddings": 577,
}


@frozen
class Style:
    """How a tower is built.

    `merge` patches become one token; `joints` are the linear layers after it, each by input and
    output in terms of "tower" (hidden size), "merged" (times `merge`), "text", and "joint", a size
    that the configuration gives. `whole` towers divide their attention alone, `norms` stand before
    and after their blocks; `head_norms` are those of a head's query and key.
    """

    gated: bool = False
    bias: bool = True
    sharded: bool = True
    norm_width: int = 2
    patch_bias: bool = False
    frames: int = 1
    joints: tuple[tuple[str, str], ...] = (("merged", "merged"), ("merged", "text"))
    exact: bool = True
    whole: bool = False
    norms: int = 1
    joint_bias: bool = True
    head_norms: bool = False


QWEN2 = Style(frames=2)
QWEN25 = Style(gated=True, norm_width=1, frames=2)
QWEN3 = Style(frames=2, patch_bias=True)
PIXTRAL = Style(
    gated=True,
    bias=False,
    sharded=False,
    norm_width=1,
    joints=(("merged", "tower"), ("tower", "text"), ("text", "text")),
)
MOON = Style(patch_bias=True)
# vLLM 0.32's `muse_glimmer.py`: blocks and joints are plain linear layers, whole on each rank.
MUSE = Style(
    frames=2,
    norms=2,
    whole=True,
    joints=(("merged", "joint"), ("joint", "joint"), ("joint", "text")),
    joint_bias=False,
)
# vLLM 0.32's `gemma4_mm.py` serves the towers of transformers, whole on each rank.
GEMMA4 = Style(
    gated=True, bias=False, sharded=False, norms=0, joints=(("tower", "text"),), head_norms=True
)
OUTLINE = Style(joints=(("tower", "text"),), exact=False)


def tower(
    vision: Settings, style: Style, text_hidden: int, parts: Parts, joint: int = 0
) -> Iterator[Tensor]:
    """Yield the tensors of a vision tower and of its joint with a decoder of `text_hidden`."""
    hidden = vision.count("hidden_size", "vt_hidden_size", "embed_dim")
    if "embed_dim" in vision and "depth" in vision:  # Qwen2-VL calls its output hidden_size
        hidden = vision.count("embed_dim")
    layers = vision.count("depth", "num_hidden_layers", "vt_num_hidden_layers", limit=MOST_LAYERS)
    heads = vision.count("num_heads", "num_attention_heads", "vt_num_attention_heads")
    ratio = int(hidden * vision.fraction("mlp_ratio", 4.0))
    inner = vision.count("intermediate_size", "vt_intermediate_size", default=ratio)
    column = Cut("column", heads) if style.sharded else WHOLE
    row = Cut("row", heads) if style.sharded else WHOLE
    column_in, row_in = (WHOLE, WHOLE) if style.whole else (column, row)

    def linear(
        name: str, inputs: int, outputs: int, cut: Cut, bias: bool = style.bias
    ) -> Iterator[Tensor]:
        yield parts.vector(f"vision.{name}", inputs * outputs, "vision", cut)
        if bias:
            split = cut if cut.shard == "column" else WHOLE
            yield parts.vector(f"vision.{name}.bias", outputs, "vision", split)

    channels = vision.count("in_channels", "num_channels", "in_chans", default=3)
    yield parts.vector("vision.patch", channels * style.frames * _area(vision) * hidden, "vision")
    if style.patch_bias:
        yield parts.vector("vision.patch.bias", hidden, "vision")
    positions = _positions(vision)
    if positions:
        yield parts.vector("vision.positions", positions * hidden, "vision")
    wide = inner * (2 if style.gated else 1)
    for number in range(layers):
        name = f"blocks.{number}"
        yield from linear(f"{name}.qkv", hidden, 3 * hidden, column)
        yield from linear(f"{name}.proj", hidden, hidden, row)
        yield from linear(f"{name}.up", hidden, wide, column_in)
        yield from linear(f"{name}.down", inner, hidden, row_in)
        yield parts.vector(f"vision.{name}.norms", 2 * style.norm_width * hidden, "vision")
        if style.head_norms:
            yield parts.vector(f"vision.{name}.head_norms", 2 * (hidden // heads), "vision")
    if style.norms:
        yield parts.vector("vision.norm", style.norms * style.norm_width * hidden, "vision")
    merge = _merge(vision)
    sizes = {"tower": hidden, "merged": hidden * merge**2, "text": text_hidden, "joint": joint}
    for number in range(1 + len(vision.numbers("deepstack_visual_indexes"))):
        if number:  # what is joined from within the tower is normalized after merging
            size = style.norm_width * sizes["merged"]
            yield parts.vector(f"vision.joint.{number}.norm", size, "vision")
        for step, (inputs, outputs) in enumerate(style.joints):
            cut = row_in if step % 2 else column_in
            bias = style.bias and style.joint_bias
            yield from linear(f"joint.{number}.{step}", sizes[inputs], sizes[outputs], cut, bias)


def _area(vision: Settings) -> int:
    """Return the pixels of a patch, whose size some give as height and width."""
    if isinstance(vision.values.get("patch_size"), list):
        sides = vision.numbers("patch_size")
        if len(sides) == 2 and all(sides):
            return sides[0] * sides[1]
    return vision.count("patch_size", default=14) ** 2


def _positions(vision: Settings) -> int:
    """Return how many learned positions there are."""
    for name in ("init_pos_emb", "pos_emb"):
        if f"{name}_height" in vision:
            return vision.count(f"{name}_height") * vision.count(f"{name}_width")
    if "position_embedding_size" in vision:
        return 2 * vision.count("position_embedding_size")
    return vision.count("num_position_embeddings", default=0) if _learned(vision) else 0


def _learned(vision: Settings) -> bool:
    return "num_position_embeddings" in vision


def _merge(vision: Settings) -> int:
    """Return the side of the square of patches that becomes one token."""
    kernel = vision.values.get("merge_kernel_size")
    if isinstance(kernel, Sequence) and kernel and isinstance(kernel[0], int) and kernel[0] > 0:
        return kernel[0]
    return vision.count("spatial_merge_size", "merge_kernel_size", "merge_size", default=2)
