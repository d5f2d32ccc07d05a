"""Which parts of many files to look at, so that a few stand for all."""

from __future__ import annotations

from collections.abc import Sequence

# What vLLM reads at once when it reads ahead.
CHUNK = 1 << 24


def spread(sizes: Sequence[int], wanted: int) -> list[tuple[int, int, int]]:
    """Return file, offset and length of parts of so many bytes in all, evenly over the files."""
    parts = [
        (number, offset, min(CHUNK, size - offset))
        for number, size in enumerate(sizes)
        for offset in range(0, size, CHUNK)
    ]
    count = min(len(parts), max(1, wanted // CHUNK)) if parts else 0
    return [parts[place * len(parts) // count] for place in range(count)]
