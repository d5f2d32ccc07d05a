"""Programs that tests send to hosts as text import what exists, though they run seldom."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
IMPORT = re.compile(r"^from (vllm_ansible[\w.]*) import ([\w, ]+)$", re.MULTILINE)
# Its packages are made up.
MADE_UP = {"test_rooms.py", "test_programs.py"}


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Return each module and name that texts of a test's source import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in IMPORT.findall(node.value):
                for name in names.split(","):
                    yield module, name.split(" as ")[0].strip()


def missing(module: str, name: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), name):
            return False
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return True
    return False


def test_what_a_text_imports_exists() -> None:
    found = {
        (str(file.relative_to(TESTS)), *one)
        for file in TESTS.rglob("*.py")
        if file.name not in MADE_UP
        for one in imported(file.read_text())
    }
    assert len(found) > 5
    assert [one for one in sorted(found) if missing(*one[1:])] == []


def test_a_module_that_was_moved_is_missed() -> None:
    text = '"""\nfrom vllm_ansible.node import lock, launcher\n"""'
    assert [one for one in imported(text) if missing(*one)] == [("vllm_ansible.node", "lock")]
