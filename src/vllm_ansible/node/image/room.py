"""What room this host has for the tar of an image, and for the image that it brings."""

from __future__ import annotations

import os
import shutil
from typing import Any


def look(images_dir: str, slug: str, remote_tmp: str, storage: str) -> dict[str, Any]:
    """Return the places that a tar passes through, each with its file system and free bytes.

    remote_tmp: where Ansible puts a file that it copies, before it moves it; a `~` is that of the
    user who logs in. storage: where the tool keeps images.
    """
    received = remote_tmp
    if remote_tmp.startswith("~/"):
        received = f"~{os.environ.get('SUDO_USER', '')}{remote_tmp[1:]}"
    final = os.path.join(images_dir, slug)
    there = sum(map(_bytes_below, (final, f"{final}.partial")))
    return {
        "tar": {**_place(images_dir), "there_bytes": there},
        "received": _place(os.path.expanduser(received)),
        "storage": _place(storage),
    }


def existing_parent(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _place(path: str) -> dict[str, Any]:
    at = existing_parent(path)
    free = shutil.disk_usage(at).free
    return {"path": path, "device": os.stat(at).st_dev, "free_bytes": free}


def _bytes_below(directory: str) -> int:
    """Return how much of the disk files below a directory take; what links lead to is not here."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, _, names in os.walk(directory)
        for name in names
    )
