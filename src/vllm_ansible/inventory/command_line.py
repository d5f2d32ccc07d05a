"""Refuse what a command line says and nothing reads: Ansible calls a misspelt tag a success."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.inventory.sources import LOADER
from vllm_ansible.problem import Problem, close_match

# The stage that lets go of the cluster, at the end of every run.
RELEASE = "release"
# What Ansible itself reads as a tag.
SPECIAL = ("all", "always", "never", "tagged", "untagged")


def unknown_tags(
    asked: Mapping[str, Sequence[str]], known: Sequence[str], playbook: str
) -> list[Problem]:
    """Return one problem for each tag that no play of a playbook has.

    asked: by option, such as --tags, the words that were given, which commas may still join.
    """
    there = sorted({*known} - {*SPECIAL})
    return [
        Problem(
            f"no tag of {playbook} is called {tag}",
            expected=", ".join(there),
            found=tag,
            where=option,
            fix=close_match(tag, there) or f"there are {', '.join(there)}",
        )
        for option, words in asked.items()
        for tag in dict.fromkeys(_split(words))
        if tag not in there and tag not in SPECIAL
    ]


def stages_of(playbook: Path) -> list[str]:
    """Return the stages of a playbook in their order: the first tag of each of its plays.

    Without the last one, which lets go of the cluster at the end of every run.
    """
    pages = yaml.load(playbook.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 it is safe
    found: list[str] = []
    for page in pages or ():
        imported = str(page.get("import_playbook") or "")
        if not imported:
            found += list(_tags({"tags": page.get("tags") or []}))[:1]
        elif "{{" not in imported:
            found += stages_of(playbook.parent / imported)
    return [one for one in dict.fromkeys(found) if one not in (*SPECIAL, RELEASE)]


def tags_of(playbook: Path) -> set[str]:
    """Return the tags of a playbook's plays and tasks, those of imported playbooks included."""
    pages = yaml.load(playbook.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 it is safe
    found: set[str] = set()
    for page in pages or ():
        found |= set(_tags(page))
        imported = str(page.get("import_playbook") or "")
        # A template is for what Ansible alone knows: it imports a check, and no stage.
        if imported and "{{" not in imported:
            found |= tags_of(playbook.parent / imported)
    return found


def _tags(page: Any) -> Iterator[str]:
    """Yield every tag at any depth."""
    if isinstance(page, list):
        for one in page:
            yield from _tags(one)
    elif isinstance(page, dict):
        for key, value in page.items():
            if key == "tags":
                yield from _split([value] if isinstance(value, str) else value)
            elif isinstance(value, list | dict):
                yield from _tags(value)


def _split(words: Sequence[str]) -> Iterator[str]:
    """Yield each tag of words that commas may join."""
    for word in words:
        yield from (tag.strip() for tag in str(word).split(",") if tag.strip())
