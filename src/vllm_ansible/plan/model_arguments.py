"""What an engine's own arguments say of its model: its precision, its length, another shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from vllm_ansible.plan.arguments import by_name, human_readable_int
from vllm_ansible.plan.engines import Engine
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.memory.lora import Slots

# Overrides of how positions are encoded: no tensor and no cache has another size by them.
POSITIONS = frozenset({"max_position_embeddings", "rope_parameters", "rope_scaling", "rope_theta"})
# Methods of speculation that hold nothing on the device.
COUNTED = ("ngram", "suffix")
# Each makes another model of the checkpoint's config.json.
SHAPES = ("hf_overrides", "hf_config_path", "quantization_config")
# Keeps whole experts on each rank, in place of a part of each.
EXPERTS = "enable_expert_parallel"


def given_arguments(engine: Engine) -> dict[str, Any]:
    """Return the arguments of an engine by the names that vLLM has for them."""
    return by_name(engine.vllm_args)


def model_options(engine: Engine) -> dict[str, str]:
    """Return the options that say in what precision an engine holds its model."""
    given = given_arguments(engine)
    return {
        "dtype": str(given.get("dtype") or "auto"),
        "quantization": str(given.get("quantization") or ""),
    }


def tower_options(engine: Engine) -> tuple[bool, bool]:
    """Tell whether an engine has no vision tower, and whether it has it whole on every rank."""
    given = given_arguments(engine)
    return given.get("language_model_only") is True, given.get("mm_encoder_tp_mode") == "data"


def keeps_prefixes(engine: Engine) -> bool | None:
    """Tell whether an engine was told to cache prefixes, or not to; None where it was not told."""
    given = given_arguments(engine)
    asked = given.get("enable_prefix_caching")
    if asked is False or given.get("no_enable_prefix_caching"):
        return False
    return True if asked is True else None


def lora_slots(engine: Engine) -> Slots | None:
    """Return the slots for LoRA adapters that an engine reserves, by vLLM's defaults; or None."""
    if given_arguments(engine).get("enable_lora") is not True:
        return None
    number, rank = asked_length(engine, "max_loras"), asked_length(engine, "max_lora_rank")
    return Slots(number or 1, rank or 16)


def proposing(engine: Engine, model: Model) -> tuple[int, str]:
    """Return the tokens that the checkpoint's own layers propose, and what is not counted.

    A draft model of its own, Eagle or Medusa, is in another checkpoint, whose size nobody reads.
    """
    given = given_arguments(engine).get("speculative_config")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return 0, ""
    if not isinstance(given, Mapping):
        return 0, ""
    method = str(given.get("method") or "")
    if method in COUNTED:
        return 0, ""
    if method.endswith("mtp") and model.next_layers:
        return max(1, human_readable_int(given.get("num_speculative_tokens")) or 1), ""
    return 0, "what its speculative_config loads beside the model is not counted: leave it memory"


def asked_length(engine: Engine, name: str = "max_model_len") -> int | None:
    """Return the tokens that an engine asks for, its context; None where vLLM is to find them."""
    length = human_readable_int(given_arguments(engine).get(name))
    return length if length is not None and length > 0 else None


def asked_number(engine: Engine, name: str) -> float | None:
    """Return a number that an engine asks for; None where it gives none, or no number."""
    value = given_arguments(engine).get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if isfinite(found) else None


def unknown_size(engine: Engine, model: Model) -> str:
    """Return why an engine's arguments leave the size of its model open; nothing where they do not.

    vLLM changes the configuration as they say, which nobody repeats here.
    """
    method = model_options(engine)["quantization"]
    if method and model.quantization == "none":
        return f"what quantization {method} makes of {model.name}'s weights on load is not known"
    for name in SHAPES:
        if changed := _changes(given_arguments(engine), name) - POSITIONS:
            what = f" ({', '.join(sorted(changed))})" if name != "hf_config_path" else ""
            return f"{name}{what} makes another model of {model.name}'s config.json"
    return ""


def _changes(given: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the keys that an argument sets, whole or dotted, as vLLM's parser takes both."""
    dotted = {key.split(".")[1] for key in given if key.startswith(f"{name}.")}
    value = given.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return frozenset({value, *dotted})
    if isinstance(value, Mapping):
        return frozenset({*map(str, value), *dotted})
    return frozenset({str(value), *dotted} if value else dotted)
