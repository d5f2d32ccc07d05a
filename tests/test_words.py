"""What users read is written in standard terms: CONTRIBUTING.md says which, under Words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
# Each pattern with what to say instead.
WORDS = {
    r"\btold\b|\btells?\b": "reports, says, shows, returns",
    r"\bmend(?:s|ed)?\b": "fix, repair",
    r"\balike\b": "equal, the same",
    r"\bstrangers?\b": "another process, another user",
    r"\b(?:nobody|somebody)\b": "name who: no process, no host, another user",
    r"\banew\b": "again, re-",
    r"\b(?:takes?|taken|took) (?:it |them )?back\b": "undo, cancel, release, terminate",
    r"\blets? go\b": "release",
    r"\ball the same\b": "still, also",
    r"\b(?:goes|go|went) on\b": "continues, resumes, runs",
}
# What users read of plays, tasks, gates and specifications.
READ = {
    *("name", "what", "fix", "expected", "msg", "summary", "prompt"),
    *("short_description", "description"),
}
# Texts that are no messages, by a part of them, with the reason.
NO_MESSAGES = {
    "The harbour master wrote down": "a prompt whose numbers are compared over years",
}


def faults(text: str) -> list[str]:
    """Return the words of a text that stop a reader, each with what to say instead."""
    if any(part in text for part in NO_MESSAGES):
        return []
    # What is code, a name or a value stays as it is, and so does the user nobody.
    prose = re.sub(r"`[^`]*`|{{.*?}}|\b[CVMOE]\([^)]*\)|\b[\w.]+_\w+\b|\buser nobody\b", " ", text)
    return [
        f"{found[0]}: say {instead}"
        for pattern, instead in WORDS.items()
        for found in re.finditer(pattern, prose, re.IGNORECASE)
    ]


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a Python file that users may read, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring
            passed.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            words = [part.value for part in node.values if isinstance(part, ast.Constant)]
            yield node.lineno, " _x ".join(map(str, words))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Programs and files that are carried as texts are no messages.
            program = re.search(r"^(?:#!|import |from |\[Unit\])|\n\s*(?:def |import )", node.value)
            if id(node) not in passed and len(node.value.split()) > 1 and not program:
                yield node.lineno, node.value


def named(page: Any) -> Iterator[str]:
    """Yield names of plays and tasks, and texts of gates, messages and specifications."""
    if isinstance(page, list):
        for one in page:
            yield from named(one)
    elif isinstance(page, dict):
        for key, value in page.items():
            if key in READ:
                texts = value if isinstance(value, list) else [value]
                yield from (one for one in texts if isinstance(one, str))
            if isinstance(value, list | dict):
                yield from named(value)


def read(folder: str, pattern: str) -> list[Path]:
    return sorted((ROOT / folder).rglob(pattern))


PYTHON = [
    path
    for folder in ("src/vllm_ansible", "library", "callback_plugins", "connection_plugins")
    for path in read(folder, "*.py")
]
PAGES = [
    ROOT / "site.yml",
    *(path for folder in ("playbooks", "roles") for path in read(folder, "*.yml")),
]


def test_messages_are_written_in_standard_terms() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in PYTHON
        for line, text in messages(path)
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


def test_names_of_tasks_and_documentation_of_roles_are_written_in_standard_terms() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text[:60]!r}: {fault}"
        for path in PAGES
        for text in named(yaml.safe_load(path.read_text(encoding="utf-8")))
        for fault in faults(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "mend what it names, and run again",
        "a hub that nobody answers",
        "Let go of the cluster",
        "the run goes on",
        "teardown.yml takes it back",
    ],
)
def test_a_word_that_stops_a_reader_is_found(text: str) -> None:
    assert faults(text)


def test_names_and_values_are_no_words() -> None:
    assert faults("user `nobody`, V(nobody), all_the_same, told_by: repairs what fails") == []
