"""What vLLM makes of unquantized weights while it loads them.

The methods are those of vLLM 0.32 (`config/quantization.py`, `_ONLINE_SHORTHANDS`; `fp8` is there
another word for `fp8_per_tensor`) and `bitsandbytes`, which 0.19 has and 0.32 leaves to plugins.
Embeddings and the output projection stay as they are: only linear layers and experts are quantized.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_ansible.plan.estimate.architectures.quantization import Quantization, Scheme

FP8 = Scheme("fp8 per tensor", 8, "tensor")
INT8 = Scheme("int8 per channel", 8, "channel")
# Blocks of 64 weights with a scale in single precision, the library's default.
NF4 = Scheme("nf4", 4, "group", 4, 64)

BOTH: Mapping[str, Scheme] = {
    "fp8": FP8,
    "fp8_per_tensor": FP8,
    "fp8_per_channel": Scheme("fp8 per channel", 8, "channel"),
    "fp8_per_block": Scheme("fp8 per block", 8, "block", 4, 128),
    "mxfp8": Scheme("mxfp8", 8, "group", 1, 32),
    "mxfp4": Scheme("mxfp4", 4, "group", 1, 32),
    "bitsandbytes": NF4,
}
EXPERTS: Mapping[str, Scheme] = {
    "experts_int8": INT8,
    "int8_per_channel_weight_only": INT8,
    "nvfp4_per_token": Scheme("nvfp4", 4, "group", 1, 16),
}
KNOWN = frozenset({*BOTH, *EXPERTS})


def on_load(method: str, plain: Scheme) -> Quantization:
    """Return how the weights of an unquantized checkpoint are held by a method, if it is known."""
    if method in BOTH:
        scheme = BOTH[method]
        # Limits of a stored block are none here: what does not divide is padded.
        return Quantization(f"{scheme.name} on load", scheme, scheme, plain, on_load=method)
    if method in EXPERTS:
        experts = EXPERTS[method]
        return Quantization(f"{experts.name} on load", plain, experts, plain, on_load=method)
    return Quantization("none", plain, plain, plain)
