"""The bytes that one token of KV cache takes on a rank, by stage."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_ansible.plan.estimate.architectures.model import KvCache, Model
from vllm_ansible.plan.estimate.memory.release import release
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.problem import PlanError, Problem

WIDTHS: Mapping[str, float] = {
    "auto": 2,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "fp8_ds_mla": 1,
    "int8": 1,
    "nvfp4": 0.5 + 1 / 16,
}
# 512 in fp8, 4 scales of fp32, 64 rotated in 16 bits (vLLM's layout for sparse MLA).
SPARSE_ENTRY = 656


def width(kv_dtype: str) -> float:
    """Return the bytes of one cached element."""
    if kv_dtype not in WIDTHS:
        raise PlanError(
            Problem(
                f"the KV cache dtype {kv_dtype[:40]!r} is not known here",
                f"one of {', '.join(WIDTHS)}",
                kv_dtype[:40],
                fix="correct kv_cache_dtype",
            )
        )
    return WIDTHS[kv_dtype]


def resolved(model: Model, kv_dtype: str, engine_version: str | None = None) -> str:
    """Return what "auto" stands for: from 0.12 what the checkpoint declares, or its precision."""
    if kv_dtype != "auto":
        return kv_dtype
    if model.kv_dtype != "auto" and release(engine_version) >= (0, 12, 0):
        return model.kv_dtype
    return model.dtype if model.dtype in WIDTHS else "auto"


def layer_bytes_per_token(
    cache: KvCache, split: Split, kv_dtype: str = "auto", engine_version: str | None = None
) -> float:
    """Return what one token leaves on one rank in one layer, windows taken as unbounded.

    Tensor parallelism divides KV heads down to one; a latent entry is on every rank. Decode
    context parallelism deals tokens to ranks.
    """
    size = width(kv_dtype)
    if cache.kind in ("linear", "none"):
        return 0.0
    if cache.kind == "mla" or cache.entry_bytes:
        elements = cache.head_size
        if release(engine_version) < (0, 8, 0):
            elements = -(-elements // 128) * 128  # V0 padded 576 to 640
        entry = elements * size
        if kv_dtype == "fp8_ds_mla":
            entry = SPARSE_ENTRY
        per_token = (cache.entry_bytes or entry) / cache.tokens_per_state
    else:
        heads = max(1, -(-cache.heads // split.tensor))
        per_token = heads * (cache.head_size + cache.value_size) * size
    return (per_token + cache.extra_bytes_per_token) / split.decode_context


def growing(cache: KvCache) -> tuple[KvCache, ...]:
    """Return a layer's cache, and that beside it where it keeps every token, too."""
    second = cache.beside
    return (cache, second) if second and second.kind in ("gqa", "mla") else (cache,)


def kv_bytes_per_token(
    model: Model, split: Split, kv_dtype: str = "auto", engine_version: str | None = None
) -> tuple[int, ...]:
    """Return the bytes of one token on a rank of each stage."""
    kv_dtype = resolved(model, kv_dtype, engine_version)
    return tuple(
        round(
            sum(
                layer_bytes_per_token(cache, split, kv_dtype, engine_version)
                for index in layers
                for cache in growing(model.layers[index].kv)
            )
        )
        for layers in stages(model.layers, split, engine_version)
    )
