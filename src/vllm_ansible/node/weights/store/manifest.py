"""What a model consists of, by the record of the hub or of object storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import quote

from ...failure import Failure

# Small enough that a chain of many hosts fills quickly, large enough that a piece costs nothing.
PIECE = 1 << 18


@dataclass(frozen=True)
class File:
    """One file: its length, and the sha256 of its content or, of small ones of the hub, git's id.

    etag is what object storage calls this content, and only it.
    """

    name: str
    bytes: int
    sha256: Optional[str] = None
    git: Optional[str] = None
    etag: Optional[str] = None

    @property
    def key(self) -> str:
        """Its name as one component of a path."""
        return quote(self.name, safe="")

    @property
    def pieces(self) -> int:
        """In how many pieces it travels; an empty file is one empty piece."""
        return max(1, -(-self.bytes // PIECE))

    def length(self, number: int) -> int:
        """Return how many bytes a piece has."""
        return min(PIECE, self.bytes - number * PIECE)


@dataclass(frozen=True)
class Manifest:
    """One revision of a model: its directory's name, its commit, and every file of it."""

    slug: str
    model: str
    revision: str
    files: tuple[File, ...]

    @property
    def keeper(self) -> str:
        """Return who outside has it, in words."""
        return "its bucket" if self.model.startswith("s3://") else "the hub"

    @property
    def bytes(self) -> int:
        """Return how many bytes all files have."""
        return sum(one.bytes for one in self.files)


def parse(slug: str, model: str, told: Mapping[str, Any]) -> Manifest:
    """Return a manifest from {revision, files: [{name, bytes, sha256, git, etag}]}.

    Raises Failure for names that would leave the model's directory.
    """
    files = tuple(sorted(_files(told["files"], model), key=lambda one: one.name))
    return Manifest(slug, model, str(told["revision"]), files)


def _files(told: Iterable[Mapping[str, Any]], model: str) -> Iterable[File]:
    for one in told:
        name = str(one["name"])
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in name:
            raise Failure(
                f"{model} lists a file that cannot be a file of a model: {name}",
                expected="names below the model's directory",
                found=name,
                where=model,
                fix="leave it out with weights_exclude, or check the mirror",
            )
        yield File(name, int(one["bytes"]), one.get("sha256"), one.get("git"), one.get("etag"))
