"""The wheels of our own builds that a host has."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

# Written last, here and on the controller.
RECORD = "wheel.json"


def folder(cluster_dir: str) -> Path:
    """Return where they lie."""
    return Path(cluster_dir) / "wheels"


def place(cluster_dir: str, key: str) -> Path:
    """Return the folder of one key."""
    return folder(cluster_dir) / key[:12]


def source(cluster_dir: str, key: str) -> Path:
    """Return where the archive that is built from is expected."""
    return Path(f"{place(cluster_dir, key)}.tar.gz")


def look(cluster_dir: str, key: str) -> Optional[dict[str, Any]]:
    """Return what is known of a wheel that is there; uv judges its digest when it installs it."""
    where = place(cluster_dir, key)
    try:
        record: dict[str, Any] = json.loads((where / RECORD).read_text())
        path = where / os.path.basename(record["file"])
        whole = record["key"] == key and path.stat().st_size == record["size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {**record, "path": str(path)} if whole else None


def remove_others(cluster_dir: str, keys: Iterable[str]) -> None:
    """Remove what belongs to none of these keys; the controller keeps the wheels."""
    stay = {place(cluster_dir, key).name for key in keys}
    for entry in folder(cluster_dir).iterdir():
        if entry.name.partition(".")[0] in stay:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
