"""An engine's environment in which vLLM alone is not real: for flows that are not about it.

Ray, PyTorch and transformers are those of the lock, in their versions and by their hashes. vLLM,
and what only it needs, are left out; tests/emulators/vllm is in their place. Real vLLM serves in
the flows of one host and of two, and in these flows in `make soak`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Of a fixture: what serves. Real vLLM in `make soak`.
ENGINES = ("stand-in", pytest.param("vllm", marks=[pytest.mark.soak, pytest.mark.engine]))
ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements/engine-cpu.txt"
# What stages other than `serve` use, and what the stand-in itself imports.
ROOTS = ("ray", "torch", "transformers", "accelerate", "gguf", "py-spy", "uvicorn")
PACKAGES = ("packages/vllm_guard", "tests/emulators/vllm")
# It answers the same with any; to convert the packaged one takes each host 17 s of processor time.
MODEL = "random:llama"
ENTRY = re.compile(r"^([a-z0-9][a-z0-9._-]*)==.*\n(?:[ \t].*\n)*", re.MULTILINE)


def subset(lock: str) -> str:
    """Return the entries of a lock that these roots need; it says of each what asks for it."""
    entries = {match[1]: match[0] for match in ENTRY.finditer(lock)}
    asked_by = {
        name: set(re.findall(r"^ +#(?: via)? +([a-z0-9][a-z0-9._-]*)", entry, re.MULTILINE))
        for name, entry in entries.items()
    }
    kept: set[str] = set()
    found = set(ROOTS)
    while found > kept:
        kept = found
        found = kept | {name for name, by in asked_by.items() if by & kept}
    return "".join(entry for name, entry in entries.items() if name in kept)


def environment(
    directory: Path, seen: Callable[[Path], Path] = lambda path: path
) -> dict[str, Any]:
    """Write lock and packages there, and return the variables of an inventory that installs them.

    seen: what the controller calls a path, where it is another machine.
    """
    directory.mkdir(parents=True)
    lock = directory / "engine.txt"
    lock.write_text(subset(LOCK.read_text()))
    packages = [directory / Path(name).name for name in PACKAGES]
    for name, target in zip(PACKAGES, packages, strict=True):
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return {
        "environment_requirements": str(seen(lock)),
        "environment_packages": [str(seen(target)) for target in packages],
        # Its numbers are made up.
        "vllm_reference_gib": 0,
    }
