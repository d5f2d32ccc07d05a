"""Become vLLM's router, with the engines' key in its environment, where it looks for it.

It leaves the file for the environment of this process alone. Standard library only, Python 3.9.
"""

from __future__ import annotations

import os
import sys

# What vLLM's router sends to its engines as their key.
NAME = "OPENAI_API_KEY"


def main(key_file: str, *argv: str) -> None:
    """Read the key and become the program."""
    with open(key_file, encoding="utf-8") as file:
        os.environ[NAME] = file.read().strip()
    os.execvp(argv[0], argv)  # noqa: S606 - named by the role


if __name__ == "__main__":
    main(*sys.argv[1:])
