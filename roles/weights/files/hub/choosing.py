"""Which files of a model are wanted."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from words import Failure

# Other formats of the same weights; *.bin is one beside safetensors.
UNWANTED = ("original/*", "*.pth", "*.onnx", "*.msgpack", "*.h5", "*.ot", "*.gguf")


def wanted(name: str, names: list[str], request: Mapping[str, Any]) -> bool:
    """Return whether a file is wanted; to include something names formats that go without."""

    def among(patterns: Any) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    if any(part.startswith(".") for part in name.split("/")) or among(request.get("exclude") or []):
        return False
    if request.get("include"):
        return among(request["include"])
    safetensors = any(other.endswith(".safetensors") for other in names)
    return not among(UNWANTED) and not (safetensors and name.endswith(".bin"))


def chosen(names: list[str], request: Mapping[str, Any], where: str) -> list[str]:
    """Return the names that are wanted; refuse where the patterns leave none."""
    left = [name for name in names if wanted(name, names, request)]
    if not left:
        raise Failure(
            f"{request['model']} has no file that is wanted",
            expected="files that the patterns leave",
            found=", ".join(sorted(names)[:8]) or "no files",
            where=where,
            fix="check the patterns of files to include and exclude",
        )
    return left
