"""Digests of objects that nobody recorded, kept beside a model on every host that has it.

digests.json holds {name: [bytes, etag, sha256]}, as the program that reads objects writes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ..launcher import write_json
from .store.shelf import Shelf


def path(shelf: Shelf) -> str:
    """Return the file of a model's digests."""
    return os.path.join(shelf.store, "digests.json")


def marked(shelf: Shelf, files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the files of a manifest with `read`: whether reading found their digest.

    What SHA256SUMS or the store says is not: it may be corrected there.
    """
    known = _known(shelf)
    return [{**one, "read": known.get(one["name"]) == _entry(one)} for one in files]


def keep(shelf: Shelf, files: Iterable[Mapping[str, Any]]) -> None:
    """Keep the digests of marked files, so that whichever host asks next knows them."""
    known = _known(shelf)
    found = {one["name"]: _entry(one) for one in files if one.get("read")}
    if {**known, **found} != known:
        write_json(path(shelf), {**known, **found}, mode=0o644, lasting=True)


def _entry(one: Mapping[str, Any]) -> list[Any]:
    return [one["bytes"], one.get("etag"), one["sha256"]]


def _known(shelf: Shelf) -> dict[str, Any]:
    """Return what the file says, nothing where it is missing or damaged."""
    with suppress(OSError, ValueError), open(path(shelf), encoding="utf-8") as handle:
        known = json.load(handle)
        return known if isinstance(known, dict) else {}
    return {}
