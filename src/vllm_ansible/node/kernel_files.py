"""Read the small files in which the kernel tells what it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Optional


def text(path: Path) -> str:
    """Return the content of a file without the white space around it; nothing if unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def number(path: Path) -> Optional[int]:
    """Return the integer that a file holds, or None."""
    try:
        return int(text(path))
    except ValueError:
        return None


def names(path: Path) -> list[str]:
    """Return the sorted names in a directory; none if it is not there."""
    try:
        return sorted(entry.name for entry in path.iterdir())
    except OSError:
        return []
