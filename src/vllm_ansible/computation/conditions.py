"""Under what engines with the same weights must compute the same numbers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_ansible.node.engine.fingerprint import PROMPTS

# Arguments of vLLM 0.32 that a right engine computes the same with: sizes and places of a layout,
# memory, queues, logs, the API, images. What is not listed counts as a reason for other numbers: an
# argument that nobody knows yet must not make a right engine a wrong one. Eager and compiled runs
# were measured: they are within the tolerance (docs/computation.md).
INDIFFERENT = Path(__file__).with_name("indifferent.txt").read_text(encoding="utf-8").split()
NAMES = frozenset(INDIFFERENT)
FAMILIES = tuple(name[:-1] for name in INDIFFERENT if name.endswith("*"))
# Of variables, vLLM's own alone; here the indifferent ones are those of logs, time and addresses.
VARIABLE = "VLLM_"
INDIFFERENT_VARIABLE = re.compile(
    r"VLLM_(API_KEY|ASSETS_|CACHE_ROOT|COMPILE_CACHE|CONFIGURE_LOGGING|CONFIG_ROOT|CPU_KVCACHE_SPACE|"
    r"CPU_NUM_OF_RESERVED_CPU|CPU_OMP_THREADS_BIND|DEBUG_|DISABLE_COMPILE_CACHE|DISABLE_LOG_LOGO|"
    r"DO_NOT_TRACK|DP_|ENGINE_READY|GC_DEBUG|HTTP_|LOG_|LOGGING_|LOOPBACK_IP|MEDIA_|NO_USAGE_STATS|"
    r"NVTX_|OBJECT_STORAGE|PORT|PP_LAYER_PARTITION|PROCESS_NAME_PREFIX|RAY_|RINGBUFFER_|RPC_|SERVER_|"
    r"TRACE_|USAGE_|WORKER_|\w*(_HOST|_IP|_PORT|_TIMEOUT|_TIMEOUT_S|_TIMEOUT_SECONDS)$)"
)
# One choice, whether it is given as an argument or as a variable.
SAME = {"VLLM_ATTENTION_BACKEND": "attention-backend"}
# Longer ones, and those with blanks or structure, are kept as their digest.
PLAIN = re.compile(r"[A-Za-z0-9._/+-]{1,64}")


def conditions(
    engine: Mapping[str, Any],
    version: str,
    accelerator: str,
    model: Mapping[str, Any] | None = None,
) -> str:
    """Return under what engines with the same weights must compute the same, as words.

    model: what is known of it on its host; some choose their positions by the longest context.
    """
    given = options(engine.get("arguments", ()))
    found = {name: _value(values) for name, values in given.items() if changes_numbers(name)}
    for name, value in (engine.get("environment") or {}).items():
        if name.startswith(VARIABLE) and not INDIFFERENT_VARIABLE.match(name):
            found[SAME.get(name, name)] = _value([str(value)])
    if (model or {}).get("long_rope") and "max-model-len" in given:
        found["max-model-len"] = _value(given["max-model-len"])
    found |= {"accelerator": accelerator, "vllm": version}
    told = " ".join(f"{name}={value}" for name, value in sorted(found.items()))
    return f"{engine['model_source']}:{engine['model']} {told} prompts={prompts_digest()}"


def prompts_digest() -> str:
    """Return which texts are asked."""
    return hashlib.sha256(json.dumps(PROMPTS).encode()).hexdigest()[:8]


def options(words: Sequence[Any]) -> dict[str, list[str]]:
    """Return a command line's options by name, each with its values."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in map(str, words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return found


def changes_numbers(option: str) -> bool:
    """Tell whether an option may change what a right engine computes."""
    name = option.partition(".")[0].removeprefix("no-").replace("_", "-")
    return name not in NAMES and not name.startswith(FAMILIES)


def _value(values: Sequence[str]) -> str:
    """Return what an option was given, short and without what may be a secret."""
    text = ",".join(values)
    if not text or PLAIN.fullmatch(text):
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:12]
