"""What FlashInfer compiles its kernels with when an engine starts, and what is there already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..environment import build as environment

PARTS = ("vllm", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
USUAL_HOME = "/usr/local/cuda"


def look(place: str, engines: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what is `installed` in an environment, and each engine's `tools`; empty is not found.

    place: the environment's directory, empty where there is none. engines: by their names, the
    variables by which each of them finds programs.
    """
    there = environment.distributions(Path(place)) if place else {}
    return {
        "installed": {name: there[name] for name in PARTS if name in there},
        "tools": {
            name: {
                "nvcc": nvcc(variables),
                "ninja": shutil.which("ninja", path=variables["PATH"]) or "",
            }
            for name, variables in engines.items()
        },
    }


def nvcc(variables: Mapping[str, str], usual: str = USUAL_HOME) -> str:
    """Return the nvcc that FlashInfer runs, as get_cuda_path of its jit/cpp_ext.py looks for it."""
    home = variables.get("CUDA_HOME") or variables.get("CUDA_PATH")
    if not home:
        found = shutil.which("nvcc", path=variables["PATH"])
        home = os.path.dirname(os.path.dirname(found)) if found else usual
    return shutil.which(os.path.join(home, "bin", "nvcc")) or ""
