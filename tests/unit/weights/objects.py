"""A model in object storage, as the program is asked for it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conftest import Program, Ran

BUCKET, PREFIX = "models", "team/tiny"
URL = f"s3://{BUCKET}/{PREFIX}"
SECRET = "wJalrXUtnFEMISECRET"  # noqa: S105  nobody's


def key(name: str) -> str:
    """Return the key of a file of the model."""
    return f"{PREFIX}/{name}"


def sums(tree: Path) -> bytes:
    """Return what `sha256sum *` writes, of files below directories too."""
    found = sorted(path for path in tree.rglob("*") if path.is_file())
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n"
        for path in found
    ).encode()


def asks(program: Program, **more: Any) -> Ran:
    """Ask what the model consists of."""
    return program.manifest(model=URL, kept=str(program.directory / "kept.json"), **more)
