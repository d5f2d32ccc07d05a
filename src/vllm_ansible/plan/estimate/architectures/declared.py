"""Which quantization a checkpoint declares.

The schemes and the names under which checkpoints declare them are those of vLLM 0.32
(`model_executor/layers/quantization`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from typing import Any

from vllm_ansible.plan.estimate.architectures.config import Settings, brief
from vllm_ansible.plan.estimate.architectures.on_load import on_load
from vllm_ansible.plan.estimate.architectures.quantization import (
    BYTES,
    Quantization,
    Scales,
    Scheme,
    short,
)


def read(
    config: Settings,
    beside: Settings | None,
    dtype: str,
    stored: frozenset[str] | None = None,
    asked: str = "",
) -> Quantization:
    """Return the quantization of a checkpoint, or what an unquantized one is made to on load.

    `beside` is `hf_quant_config.json`, which `modelopt` writes; `stored` is what the index shows;
    `asked` is the engine's option `quantization`.
    """
    plain = Scheme(dtype, 8 * BYTES[dtype])
    own = config.section("quantization_config") or config.section("compression_config")
    if own is None and beside is not None:
        own = beside.section("quantization") or beside
        own = Settings({"quant_method": "modelopt", **own.values}, own.where)
    if own is None:
        return on_load(asked, plain)
    method = own.text("quant_method").lower().replace("_", "-")
    # Of modelopt's own exports some name no method.
    method = method or ("modelopt" if own.text("quant_algo") else "")
    if method in ("", "none"):
        return on_load(asked, plain)
    if method not in METHODS:
        raise own.problem(
            f"the quantization {brief(own.values.get('quant_method'))} is not known here",
            f"one of {', '.join(sorted(METHODS))}",
        )
    name, linear, experts = METHODS[method](own, plain)
    if "fp4" in (config.text("expert_dtype"), own.text("expert_dtype")):
        experts = MXFP4  # DeepSeek-V4 stores its experts apart
        if linear.scales == "block" and linear.size == MXFP8.size:
            name, linear = MXFP8.name, MXFP8  # and V4.1 is held with a scale for 32 of a row
    only = {
        _whole(short(module)): _modelopt_scheme(own, str(algorithm.get("quant_algo")), plain)
        for module, algorithm in own.values.get("quantized_layers", {}).items()
    }
    names, patterns = _exceptions(own)
    cache = _cache(own)
    return Quantization(name, linear, experts, plain, names, patterns, only, stored, cache)


def _whole(module: str) -> str:
    """Return the name of all experts of a layer for that of a part of one of them."""
    found = ONE_EXPERT.match(module)
    return found[1] if found else module


def _cache(own: Settings) -> str:
    """Return the precision declared for the KV cache (`get_kv_cache_quant_algo_string`)."""
    nested = own.section("quantization")
    for one in (nested, own) if nested else (own,):
        scheme = one.values.get("kv_cache_scheme") or one.values.get("kv_cache_quant_algo")
        if isinstance(scheme, Mapping) and scheme.get("type") == "float":
            bits = scheme.get("num_bits")
            return "fp8" if bits == 8 else "nvfp4" if bits == 4 else "auto"
        if isinstance(scheme, str):
            return {"fp8": "fp8", "nvfp4": "nvfp4"}.get(scheme.lower(), "auto")
    return "auto"


def _exceptions(own: Settings) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """Return the modules left out: exact names, and wildcards or regular expressions."""
    lists = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
    names, patterns = set(), []
    for name in (str(item) for entry in lists for item in own.items(entry)):
        if name.startswith("re:"):
            try:
                patterns.append(re.compile(r"(?:.*\.)?" + name.removeprefix("re:").lstrip("^")))
            except re.error as error:
                raise own.problem(
                    f"the exception {brief(name)} is no expression: {error}"
                ) from error
        elif "*" in name:
            patterns.append(re.compile(translate(short(name))))
        else:
            names.add(short(name))
    return frozenset(names), tuple(patterns)


ONE_EXPERT = re.compile(r"(.*\.experts)\.\d+\..+")
Read = tuple[str, Scheme, Scheme]
MXFP4 = Scheme("mxfp4", 4, "group", 1, 32)
MXFP8 = Scheme("mxfp8", 8, "group", 1, 32)


def _both(scheme: Scheme) -> Read:
    return scheme.name, scheme, scheme


def _fp8(own: Settings, plain: Scheme) -> Read:
    block = own.items("weight_block_size")
    if not block:
        return _both(Scheme("fp8 per tensor", 8, "tensor"))
    if len(set(block)) != 1 or not isinstance(block[0], int) or block[0] < 1:
        raise own.problem(f"weight_block_size is {brief(block)}, not two equal sides")
    return _both(Scheme("fp8 per block", 8, "block", 4, block[0]))


def _fbgemm(own: Settings, plain: Scheme) -> Read:
    return _both(Scheme("fp8 per channel", 8, "channel"))


def _packed(own: Settings, plain: Scheme) -> Read:
    """AWQ and GPTQ: packed integers, a half-precision scale and a packed zero for each group."""
    bits = own.count("bits", "w_bit", limit=16)
    group = own.values.get("group_size", own.values.get("q_group_size", 128))
    size = group if isinstance(group, int) and group > 0 else 0
    scales: Scales = "group" if size else "channel"
    return _both(Scheme(f"int{bits}", bits, scales, 2, size, bits))


def _modelopt_scheme(own: Settings, algorithm: str, plain: Scheme) -> Scheme:
    size = own.size("group_size", 16)
    schemes = {
        "FP8": Scheme("fp8 per tensor", 8, "tensor"),
        "FP8_PER_CHANNEL_PER_TOKEN": Scheme("fp8 per channel", 8, "channel"),
        "FP8_PB_WO": Scheme("fp8 per block", 8, "block", 4, 128),
        "NVFP4": Scheme("nvfp4", 4, "group", 1, size),
        "W4A16_NVFP4": Scheme("nvfp4", 4, "group", 1, size),
        "MXFP8": MXFP8,
        "MIXED_PRECISION": plain,
    }
    if algorithm not in schemes:
        raise own.problem(
            f"the quantization algorithm {brief(algorithm)} is not known here",
            f"one of {', '.join(schemes)}",
        )
    return schemes[algorithm]


def _modelopt(own: Settings, plain: Scheme) -> Read:
    nested = own.section("quantization")
    own = nested or own
    algorithm = own.text("quant_algo").upper()
    scheme = _modelopt_scheme(own, algorithm, plain)
    if algorithm == "MIXED_PRECISION":
        marked = Scheme("mixed", plain.bits, "tensor")
        return "mixed", marked, marked
    return _both(scheme)


def _mxfp4(own: Settings, plain: Scheme) -> Read:
    return "mxfp4", plain, MXFP4


def _compressed(own: Settings, plain: Scheme) -> Read:
    """compressed-tensors: groups of targets, each with how its weights are stored."""
    groups = own.section("config_groups")
    if groups is None or not groups.values:
        raise own.problem("compressed-tensors without config_groups does not say how it is stored")
    schemes = [
        _compressed_group(Settings(group, f"{groups.where}: {name}"))
        for name, group in groups.values.items()
        if isinstance(group, Mapping) and group.get("weights")
    ]
    return _both(schemes[0]) if schemes else ("none", plain, plain)


def _compressed_group(group: Settings) -> Scheme:
    weights = group.section("weights") or group
    bits = weights.count("num_bits", limit=16)
    kind, strategy = weights.text("type"), weights.text("strategy", "tensor")
    size = weights.size("group_size") if strategy != "channel" else 0
    word = "fp" if kind == "float" else "int"
    if strategy in ("tensor", "channel"):
        scales: Scales = "tensor" if strategy == "tensor" else "channel"
        return Scheme(f"{word}{bits} per {strategy}", bits, scales)
    if strategy == "block":
        side = _side(weights.items("block_structure"))
        return Scheme(f"{word}{bits} per block", bits, "block", 4, side)
    if strategy in ("group", "tensor_group") and size:
        if kind == "float" and bits == 4:
            return Scheme("nvfp4" if size == 16 else "mxfp4", 4, "group", 1, size)
        zero = 0 if weights.flag("symmetric", True) else bits
        return Scheme(f"{word}{bits}", bits, "group", 1 if kind == "float" else 2, size, zero)
    raise weights.problem(f"weights stored by {brief(strategy)} are not known here")


def _side(structure: Sequence[Any]) -> int:
    return structure[0] if structure and isinstance(structure[0], int) else 128


METHODS = {
    "fp8": _fp8,
    "deepseek-v4-fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "awq": _packed,
    "awq-marlin": _packed,
    "gptq": _packed,
    "gptq-marlin": _packed,
    "auto-round": _packed,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
}
