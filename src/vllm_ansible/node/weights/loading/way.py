"""How vLLM reads a model's files when it loads them: by where they lie, and by its arguments.

Read from vLLM 0.32: `DefaultModelLoader` and `safetensors_weights_iterator` (weight_utils.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Optional

# Page after page, when a tensor's own share is copied out of the mapped file.
MAPPED = "mapped"
# The same, while threads of each rank read a share of the files into memory.
AHEAD = "ahead"
# One file after another, each as a whole.
WHOLE = "whole"
# No file is read, or by a program whose way is not known here.
NOTHING, UNKNOWN = "nothing", "unknown"

# Where it reads ahead by itself, if all files fit into this share of the memory that is free.
AHEAD_ON = ("nfs", "nfs4", "lustre")
FITS = 0.9
THREADS = 8
FORMATS = ("auto", "hf", "safetensors", "mistral")


def given(words: Sequence[str], name: str) -> Optional[str]:
    """Return the value that a command line gives an argument, None where it gives none."""
    flag, found = f"--{name.replace('_', '-')}", None
    for place, word in enumerate(words):
        head, equals, value = str(word).partition("=")
        if head.replace("_", "-") != flag:
            continue
        found = value if equals else str(next(iter(words[place + 1 : place + 2]), ""))
    return found


def fits(size: int, available: int) -> bool:
    """Tell whether vLLM takes files of this size to fit into memory."""
    return size <= FITS * available


def way_of(kind: str, size: int, available: int, words: Sequence[str]) -> str:
    """Return how files of this size on a file system of this kind are read."""
    load_format = (given(words, "load_format") or "auto").lower()
    if load_format == "dummy":
        return NOTHING
    strategy = given(words, "safetensors_load_strategy")
    if load_format not in FORMATS or strategy == "torchao":
        return UNKNOWN
    if strategy == "eager":
        return WHOLE
    if strategy == "prefetch":
        return AHEAD
    alone = strategy is None and not _threaded(given(words, "model_loader_extra_config"))
    return AHEAD if alone and kind in AHEAD_ON and fits(size, available) else MAPPED


def readers_of(way: str, ranks: int, words: Sequence[str]) -> int:
    """Return how many threads of a host read at once.

    Ranks that map the same files go through them in the same order: one reads for all.
    """
    threads = given(words, "safetensors_prefetch_num_threads") or ""
    each = int(threads) if threads.isdecimal() and int(threads) else THREADS
    return each * max(ranks, 1) if way == AHEAD else 1


def _threaded(extra: Optional[str]) -> bool:
    """Tell whether the loader of several threads is asked for, which never reads ahead."""
    try:
        wanted = json.loads(extra or "{}")
    except ValueError:
        return False
    return isinstance(wanted, dict) and bool(wanted.get("enable_multithread_load"))
