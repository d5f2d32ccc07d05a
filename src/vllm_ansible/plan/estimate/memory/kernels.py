"""How the kernels that vLLM picks for a device hold routed experts: padded, or beside a copy.

Read from vLLM 0.32's `fused_moe/oracle/mxfp4.py`, `flashinfer_utils.prepare_fp8_moe_layer_for_fi`
and Triton's layouts of scales on Hopper.
"""

from __future__ import annotations

from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Tensor
from vllm_ansible.plan.estimate.memory.release import Release, release

HOPPER = 9.0
# Triton's kernels came with the package from here on (vllm#27370, that is 0.11.1) and kept the
# scales of the checkpoint beside their own until vllm#46549 of June 2026.
TRITON_SINCE = (0, 11, 1)
ONE_COPY_SINCE = (0, 25, 0)
# FlashInfer's kernels are the default for FP8 experts since 0.15 (vllm#34356).
FLASHINFER_SINCE = (0, 15, 0)
# Before, CUTLASS multiplied those that compressed-tensors stores with scales per channel on Hopper
# (`CompressedTensorsW8A8Fp8MoECutlassMethod`), which hardly any checkpoint without blocks is not.
CUTLASS_SINCE = (0, 9, 0)
# Rows of scales that one tile of Triton's layout has: 2 x 8 warps x 2 x 8.
SCALE_ROWS = 256
SCALE_GROUP = 32
# Kimi-K3's class makes an expert's part on a rank at least so wide.
LEAST_UNITS = 256


@frozen
class Kernels:
    """What decides which kernels run: maker's software, NVIDIA's compute capability, release.

    A capability of None is one that nobody knows: then nothing newer than Ampere is taken.
    """

    kind: str = "cuda"
    capability: float | None = None
    version: Release = release(None)

    @property
    def triton(self) -> bool:
        """Tell whether gpt-oss's experts run in Triton's kernels: Hopper's default."""
        hopper = self.kind == "cuda" and self.capability == HOPPER
        return hopper and self.version >= TRITON_SINCE

    @property
    def flashinfer(self) -> bool:
        """Tell whether FP8 experts run in FlashInfer's kernels: Hopper and later."""
        newer = self.kind == "cuda" and (self.capability or 0) >= HOPPER
        return newer and self.version >= FLASHINFER_SINCE

    @property
    def cutlass(self) -> bool:
        """Tell whether FP8 experts without blocks of scales are multiplied by CUTLASS's kernels."""
        newer = self.kind == "cuda" and (self.capability or 0) >= HOPPER
        return newer and self.version >= CUTLASS_SINCE


USUAL = Kernels()


def held(tensor: Tensor, ranks: int, kernels: Kernels) -> float:
    """Return the bytes of all experts whose intermediate size is dealt to so many ranks."""
    if tensor.padding == "mxfp4" and kernels.triton:
        units = ceil(tensor.units / ranks)
        return _in_triton(tensor, _up(units, 64) if tensor.units > 1 else 1, kernels.version)
    return (
        tensor.bytes / tensor.units * ceil(tensor.units / ranks) * stretch(tensor, ranks, kernels)
    )


def stretch(tensor: Tensor, ranks: int, kernels: Kernels) -> float:
    """Return how many times as large a rank's share is by what kernels pad, and multiply."""
    units = ceil(tensor.units / ranks)
    if tensor.padding == "least 256":
        return max(units, LEAST_UNITS) / units if ranks > 1 and tensor.units > 1 else 1.0
    inner, width = _alignment(tensor, kernels)
    factor = _up(units, inner) / units if tensor.units > 1 else 1.0
    return factor * _up(tensor.width, width) / tensor.width if tensor.width else factor


def _alignment(tensor: Tensor, kernels: Kernels) -> tuple[int, int]:
    """Return to what a kernel rounds a rank's intermediate size, and the hidden size."""
    if tensor.padding == "mxfp4" and kernels.triton:
        return 64, 1
    if tensor.padding == "mxfp4":
        by_kind = {"rocm": (256, 256), "cpu": (32, 32)}
        return by_kind.get(kernels.kind, (128, 256))  # Marlin and TensorRT-LLM
    if tensor.padding == "fp8 ungated" and kernels.flashinfer:
        return 128, 1
    return 1, 1


def _in_triton(tensor: Tensor, units: int, version: Release) -> float:
    """Return the bytes of one tensor of gpt-oss: weights as they are, biases in fp32.

    Scales are laid out anew in tiles; the rows of the first product are both its halves'.
    """
    size = tensor.bytes * units / tensor.units
    if tensor.name.endswith("bias"):
        return 2 * size
    if not tensor.name.endswith("scales"):
        return size
    first = tensor.name.endswith("w13.scales")
    rows, inputs = (2 * units, tensor.width) if first else (tensor.width, units)
    groups = ceil(inputs / SCALE_GROUP)
    freed = version >= ONE_COPY_SINCE
    tiles = _up(rows, SCALE_ROWS) * _up(groups, 4 if freed else 2)
    return (0 if freed else size) + tensor.experts * tiles


def _up(number: int, step: int) -> int:
    return ceil(number / step) * step
