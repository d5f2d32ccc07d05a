"""Code that modules import travels to hosts: standard library, relative imports, Python 3.9."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/vllm_ansible"
SHIPPED = "ansible.module_utils.vllm_ansible"


def package_of(path: Path) -> str:
    """Return the package, as hosts see it, that relative imports of a file start from."""
    return ".".join([SHIPPED, *path.relative_to(SOURCE).parent.parts])


def imports(path: Path) -> set[str]:
    """Return the absolute names that a file may import, at whatever depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package_of(path).split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
            names.add(base)
            if base.startswith(SHIPPED):
                names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def file_of(name: str) -> Path | None:
    """Return the file of one of our shipped modules; None where a name is no module."""
    path = SOURCE.joinpath(*name.removeprefix(SHIPPED).strip(".").split("."))
    return next(
        (one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None
    )


def shipped() -> list[Path]:
    """Return every file that some module takes along, with all of node/."""
    queue = [*(ROOT / "library").glob("*.py"), *(SOURCE / "node").rglob("*.py")]
    seen: set[Path] = set()
    while queue:
        path = queue.pop()
        if path not in seen:
            seen.add(path)
            ours = (file_of(name) for name in imports(path) if name.startswith(SHIPPED))
            queue += [found for found in ours if found is not None]
    return sorted(seen)


@pytest.mark.parametrize("path", shipped(), ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_code_needs_nothing_installed(path: Path) -> None:
    for name in imports(path):
        top = name.partition(".")[0]
        assert top == "ansible" or top in sys.stdlib_module_names, name
        assert top != "ansible" or name.startswith("ansible.module_utils"), name


def test_nothing_outside_node_is_shipped() -> None:
    allowed = (ROOT / "library", SOURCE / "node")
    stray = [path for path in shipped() if not any(path.is_relative_to(one) for one in allowed)]
    assert stray == [SOURCE / "__init__.py"] or stray == []


def test_node_code_compiles_and_imports(node_python: str) -> None:
    paths = [path.relative_to(SOURCE.parent) for path in (SOURCE / "node").rglob("*.py")]
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    modules = sorted(
        ".".join(path.with_suffix("").parts) for path in paths if path.stem != "__init__"
    )
    done = subprocess.run(
        [node_python, "-c", program, *modules],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
