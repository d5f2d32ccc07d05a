"""Models on a host that no engine needs any more: which they are, and their removal.

Only what the store made counts: a directory that was named (`path`) is nobody's to remove.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..process.in_use import users_of
from .models import model_of
from .store.shelf import STORE, Shelf


@dataclass(frozen=True)
class Kept:
    """One model that lies here."""

    name: str
    bytes: int
    # Why it has to stay, in words; empty where nothing needs it.
    why: str = ""


def look(models_dir: str, engines: Sequence[Mapping[str, Any]]) -> list[Kept]:
    """Return every model the store made here, with what needs it.

    engines: of the inventory and of the plan, on whatever host: a model comes back to a host more
    dearly than it stays.
    """
    slugs = _made(models_dir)
    needed = {model_of(one).slug(): str(one["name"]) for one in engines}
    users = users_of([os.path.join(models_dir, slug) for slug in slugs])
    found = []
    for slug in slugs:
        shelf = Shelf(models_dir, slug)
        why = f"engine {needed[slug]} serves it" if slug in needed else ""
        if not why and shelf.final in users:
            why = f"process {users[shelf.final]} uses it"
        why = why or ("a run is completing it" if shelf.tended() else "")
        found.append(Kept(slug, sum(map(_size, _places(models_dir, slug))), why))
    return found


def remove(models_dir: str, slugs: Iterable[str]) -> None:
    """Remove models; what is interrupted is gone on with by the next run, which knows them still.

    The mark that this project made them goes last.
    """
    for slug in slugs:
        for place in _places(models_dir, slug):
            if os.path.isdir(place):
                shutil.rmtree(place)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(place)


def _made(models_dir: str) -> list[str]:
    """Return the models that the store made, whole or not."""
    found = set()
    with suppress(FileNotFoundError):
        found |= set(os.listdir(os.path.join(models_dir, STORE)))
    with suppress(FileNotFoundError):
        for name in os.listdir(models_dir):
            if name.endswith(".json") and _source(os.path.join(models_dir, name)) != "path":
                found.add(name[: -len(".json")])
    return sorted(found)


def _source(record: str) -> str:
    """Return where a record says its model is from; of one that says nothing, path."""
    try:
        with open(record, encoding="utf-8") as content:
            return str(json.load(content)["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return "path"


def _places(models_dir: str, slug: str) -> list[str]:
    """Return where a model lies, in the order in which it is removed."""
    place = os.path.join(models_dir, slug)
    marks = [f"{place}.json", os.path.join(models_dir, STORE, slug)]
    return [f"{place}.partial", place, *marks]


def _size(place: str) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    total = 0
    with suppress(FileNotFoundError):
        if not os.path.isdir(place):
            return os.lstat(place).st_size
        for folder, _, files in os.walk(place):
            for name in files:
                with suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_size
    return total
