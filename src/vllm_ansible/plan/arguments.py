"""Turn `vllm_args` of an engine into the command line that `vllm serve` parses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from vllm_ansible.accelerators.platform import platform

# The layout, the addresses and the key are this project's to set: two places would disagree.
OURS = {
    "api_key": "vllm_api_key_file",
    "config": "vllm_args itself",
    "data_parallel_address": "layout: {data: N}",
    "data_parallel_backend": "layout: {data: N}",
    "data_parallel_external_lb": "layout: {data: N}",
    "data_parallel_hybrid_lb": "layout: {data: N}",
    "data_parallel_multi_port_external_lb": "layout: {data: N}",
    "data_parallel_rank": "layout: {data: N}",
    "data_parallel_rpc_port": "layout: {data: N}",
    "data_parallel_size": "layout: {data: N}",
    "data_parallel_size_local": "layout: {data: N}",
    "data_parallel_start_rank": "layout: {data: N}",
    "distributed_executor_backend": "executor",
    "headless": "executor: mp",
    "host": "data_plane_network or data_plane_interface",
    "master_addr": "executor: mp",
    "master_port": "executor: mp",
    "model": "model",
    "nnodes": "nodes",
    "node_rank": "executor: mp",
    "pipeline_parallel_size": "layout: {pipeline: N}",
    "port": "port",
    "served_model_name": "served_name",
    "tensor_parallel_size": "layout: {tensor: N}",
    "uds": "port",
}

# One letter begins many options, and vLLM refuses it by itself.
SHORTEST = 2

# Suffixes of numbers that vLLM's parser reads: small ones are decimal, capital ones binary.
SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
AUTO = -1


def ours(name: str) -> str | None:
    """Return what is used in place of an argument that is this project's, None for any other.

    vLLM's parser takes the beginning of an option for it: `hos` would open the engine to everybody.
    """
    plain = name.lstrip("-").replace("-", "_").partition("=")[0].partition(".")[0]
    if plain in OURS or len(plain) < SHORTEST:
        return OURS.get(plain)
    return next((instead for one, instead in OURS.items() if one.startswith(plain)), None)


def by_name(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names that vLLM has for them."""
    return {str(name).replace("-", "_"): value for name, value in arguments.items()}


def option(name: str) -> str:
    """Return the flag of an argument: max_model_len is --max-model-len."""
    return "--" + name.replace("_", "-")


def command_line(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the flags in sorted order, in the forms vLLM's parser takes."""
    words: list[str] = []
    for name in sorted(arguments, key=str):
        words += _words(str(name).replace("-", "_"), arguments[name])
    return tuple(words)


def whole_number(words: Sequence[str], name: str) -> int | None:
    """Return the number that a command line gives an argument, None where it gives none."""
    flag = option(name)
    given = [value for word, value in pairwise(words) if word == flag]
    given += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
    number = human_readable_int(given[-1]) if given else None
    return number if number is not None and number >= 0 else None


def human_readable_int(value: object) -> int | None:
    """Return the number of a value as vLLM 0.32 reads it, None for what it does not read.

    `8k` is 8000, `8K` 8192, `25.6k` 25600; `auto` is -1, as for max_model_len.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if text.lower() == "auto":
        return AUTO
    match = SUFFIXED.fullmatch(text)
    if match is None:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else None
    number, suffix = match.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.islower():
        return int(float(number) * 1000**power)
    # vLLM takes no fraction of a binary unit.
    return int(number) * 1024**power if number.isdecimal() else None


def _words(name: str, value: Any) -> list[str]:
    """Return the words of one argument: a boolean is a flag or its negation."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [option(name) if value else option(f"no_{name}")]
    if isinstance(value, Mapping):
        return [option(name), json.dumps(value, sort_keys=True)]
    if isinstance(value, list | tuple):
        return [option(name), *(_word(item) for item in value)]
    return [option(name), _word(value)]


def _word(value: Any) -> str:
    """Return one value as a word; what has structure travels as JSON."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, sort_keys=True)
    return str(value)


def with_defaults(arguments: Mapping[str, Any], accelerator: str, data: int = 1) -> dict[str, Any]:
    """Return the arguments, with what an engine needs that computes with this kind.

    On a CPU that is what starts on a small machine; with several data ranks, where a buffer is
    sized by them, the tokens of a step.
    """
    kind = platform(accelerator)
    wanted = by_name(arguments)
    compiled = {"enforce_eager", "compilation_config", "optimization_level"}
    if kind.eager and not wanted.keys() & compiled:
        wanted["enforce_eager"] = True
    cached = {"kv_cache_memory_bytes", "num_gpu_blocks_override"}
    if kind.kv_cache_bytes and not wanted.keys() & cached:
        wanted["kv_cache_memory_bytes"] = kind.kv_cache_bytes
    if kind.step_tokens and data > 1:
        least = human_readable_int(wanted.get("max_model_len")) or kind.step_tokens
        wanted.setdefault("max_num_batched_tokens", max(least, kind.step_tokens))
    return wanted
