"""What data-parallel ranks must know of a model, from its configuration on the host."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

# In the order in which vLLM reads them (model_arch_config_convertor.py, 0.32).
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
QUANTIZED = ("quantization_config", "compression_config")
POSITIONS = ("rope_parameters", "rope_scaling")
# Of some models also su, its first name. Its factors depend on the longest context
# (phi3_long_rope_scaled_rope.py, 0.32).
LONG = ("longrope", "su")


def facts(place: str) -> dict[str, Any]:
    """Return `experts`, 0 of a dense model, and `hidden_size`; 0 for what cannot be read.

    Also whether the weights are `quantized`, and whether `long_rope` chooses positions by the
    longest context that is served.
    """
    try:
        with open(os.path.join(place, "config.json"), encoding="utf-8") as config_file:
            config = json.load(config_file)
    except (OSError, ValueError):
        config = {}
    config = config if isinstance(config, Mapping) else {}
    # Of a model that also sees or hears, the part that writes.
    text = config.get("text_config")
    known = {**config, **text} if isinstance(text, Mapping) else config
    return {
        "experts": next((number for number in map(_number, _given(known)) if number), 0),
        "hidden_size": _number(known.get("hidden_size")),
        "quantized": any(one.get(name) for one in (config, known) for name in QUANTIZED),
        "long_rope": any(_long(known.get(name)) for name in POSITIONS),
    }


def _long(positions: Any) -> bool:
    """Tell whether positions have factors of their own for long contexts."""
    found = positions if isinstance(positions, Mapping) else {}
    return found.get("rope_type", found.get("type")) in LONG


def _given(config: Mapping[str, Any]) -> list[Any]:
    """Return every count of experts that is there, those of single blocks last."""
    blocks = config.get("block_configs")
    found = [config.get(name) for name in EXPERTS]
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, Mapping) and block.get("block_type") == "moe":
            found.append(block.get("n_routed_experts"))
    return found


def _number(value: Any) -> int:
    """Return a count, of a list its first, 0 for anything else."""
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) and not isinstance(first, bool) and first > 0 else 0
