"""Which engines' first numbers can be held against what transformers computes on the processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vllm_ansible.computation.conditions import options
from vllm_ansible.plan.servers import entry_of, pinned, random_weights, unasked

GIB = 1 << 30
# With one of them transformers, which is given none, would compute something else.
OWN_NUMBERS = frozenset(
    {
        "config-format",
        "convert",
        "disable-sliding-window",
        "hf-config-path",
        "hf-overrides",
        "logprobs-mode",
        "model-class-overrides",
        "model-weights",
        "quantization",
        "quantization-config",
        "rope-scaling",
        "rope-theta",
        "runner",
        "tokenizer",
        "tokenizer-mode",
        "tokenizer-revision",
    }
)
# Of the cache, the types that keep what was computed.
WIDE = ("auto", "bfloat16", "float16", "float32")


def references(
    engines: Iterable[Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Any]],
    host: Mapping[str, Any],
    limit_gib: float,
    engine_version: str = "",
) -> list[dict[str, Any]]:
    """Return what is to be computed on this host, the first one of these engines.

    Each has the `engine`, the digest of its `weights` and their `place`; or why it is `skipped`.
    """
    first_engine = pinned(str(host.get("accelerator", "")), engine_version)
    return [
        {
            "engine": str(engine["name"]),
            "weights": str(model.get("fingerprint", "")),
            "place": str(model.get("path", "")),
            "skipped": skipped(engine, model, limit_gib, first_engine),
        }
        for engine in engines
        if engine["hosts"][0] == host["name"]
        for model in [models.get(entry_of(engine), {})]
    ]


def skipped(
    engine: Mapping[str, Any],
    model: Mapping[str, Any],
    limit_gib: float,
    first_engine: bool = False,
) -> str:
    """Return why nothing is computed for an engine, empty where it is."""
    given = options(engine.get("arguments", ()))
    weights = int(model.get("bytes") or 0)
    changing = sorted(OWN_NUMBERS & {name.partition(".")[0] for name in given})
    cache = ",".join(given.get("kv-cache-dtype", [])) or "auto"
    if limit_gib <= 0:
        return "vllm_reference_gib is 0"
    if why := unasked(engine, first_engine):
        return why
    if random_weights(engine):
        return "its weights are random numbers"
    if not model.get("fingerprint"):
        return "no digest of its weights is known"
    if weights > limit_gib * GIB:
        return f"{weights / GIB:.2f} GiB of weights, and vllm_reference_gib is {float(limit_gib):g}"
    if model.get("quantized"):
        return "its weights are quantized"
    if "trust-remote-code" in given:
        return "it has code of its own (trust_remote_code), which is run by the engine alone"
    if changing or cache not in WIDE:
        name = changing[0] if changing else "kv-cache-dtype"
        return f"{name} changes what it computes"
    return ""


def unmeasured(engine: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Return why nobody knows how far right engines with this model lie apart, or nothing.

    The tolerance was measured on a dense model, in bfloat16.
    """
    given = options(engine.get("arguments", ()))
    cache = ",".join(given.get("kv-cache-dtype", [])) or "auto"
    found = []
    if model.get("quantized") or {"quantization", "quantization-config"} & given.keys():
        found.append("quantized models")
    elif cache not in WIDE:
        found.append("quantized caches")
    if int(model.get("experts") or 0) > 0:
        found.append("mixtures of experts")
    return " and ".join(found)
