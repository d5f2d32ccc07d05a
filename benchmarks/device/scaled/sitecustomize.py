"""Scale weights of one process of an engine in memory, as a damaged device would.

Python reads this file by itself where PYTHONPATH names this directory. SCALED_PROCESS is the name
of the process, such as chat-serve-1, SCALED_BY the factor. Every output of attention and of the
dense part of that process is multiplied, right after its weights were loaded.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

LOADER = "vllm.model_executor.model_loader.base_loader"
SCALED = ("o_proj.weight", "down_proj.weight")


class Finder(importlib.abc.MetaPathFinder):
    """Find one module as Python would, and change it once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own loader, followed by the change."""
        if name != LOADER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def both(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = both  # type: ignore[method-assign]
        return spec


def change(module: Any) -> None:
    """Scale after what loads a model."""
    own = module.BaseModelLoader.load_model
    factor = float(os.environ["SCALED_BY"])

    def load_model(self: Any, *given: Any, **named: Any) -> Any:
        model = own(self, *given, **named)
        scaled = 0
        for name, weight in model.named_parameters():
            if name.endswith(SCALED):
                weight.data.mul_(factor)
                scaled += 1
        print(f"scaled: {scaled} weights x {factor}", flush=True)
        return model

    module.BaseModelLoader.load_model = load_model


if Path(os.environ.get("VLLM_ANSIBLE_PROCESS", "")).stem == os.environ.get("SCALED_PROCESS", "-"):
    sys.meta_path.insert(0, Finder())
