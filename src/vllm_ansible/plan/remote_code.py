"""Tell from a command line of vLLM whether the engine may run code that comes with its model."""

from __future__ import annotations

from collections.abc import Sequence

FLAG = "--trust-remote-code"
# What is written in a file is not seen here.
FILE = "--config"


def trusts_remote_code(arguments: Sequence[str]) -> bool:
    """Tell whether a model's own code may run, where that is not certain as well.

    vLLM's parser takes any beginning of an option that no other option has, an underscore for a
    dash, more options from a file, and fields of its configurations as JSON or after a dot.
    """
    return any(_may_trust(str(one).replace("_", "-").lower()) for one in arguments)


def _may_trust(word: str) -> bool:
    name = word.partition("=")[0]
    # `--` alone ends the options.
    begins = len(name) > len("--") and any(one.startswith(name) for one in (FLAG, FILE))
    inside = FLAG.strip("-") in word and not word.startswith("--no-")
    return begins or inside
