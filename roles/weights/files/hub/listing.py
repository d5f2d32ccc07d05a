"""What a model consists of, by the hub's own record."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from patience import ATTEMPTS, Patience
from words import Failure

# Other formats of the same weights; *.bin is one beside safetensors.
UNWANTED = ("original/*", "*.pth", "*.onnx", "*.msgpack", "*.h5", "*.ot", "*.gguf")


def chosen(name: str, names: list[str], request: Mapping[str, Any]) -> bool:
    """Return whether a file is wanted; to include something names formats that go without."""

    def among(patterns: Any) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    if any(part.startswith(".") for part in name.split("/")) or among(request.get("exclude") or []):
        return False
    if request.get("include"):
        return among(request["include"])
    safetensors = any(other.endswith(".safetensors") for other in names)
    return not among(UNWANTED) and not (safetensors and name.endswith(".bin"))


def manifest(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the commit and the wanted files, with their sizes and hashes."""
    model, revision = request["model"], request.get("revision") or None
    patience = Patience(request.get("attempts", ATTEMPTS))
    info = patience(
        lambda: HfApi().model_info(model, revision=revision, files_metadata=True, timeout=30)
    )
    found = {one.rfilename: one for one in info.siblings or []}
    wanted = [found[name] for name in found if chosen(name, list(found), request)]
    if not wanted:
        raise Failure(
            f"{model} has no file that is wanted",
            expected="files that the patterns leave",
            found=", ".join(sorted(found)[:8]) or "no files",
            where=f"{model} at {info.sha}",
            fix="check the patterns of files to include and exclude",
        )
    if info.gated:
        # What a gated model consists of is told to everybody.
        smallest = min(wanted, key=lambda one: one.size or 0).rfilename
        url = hf_hub_url(model, smallest, revision=info.sha)
        patience(lambda: get_hf_file_metadata(url))
    files = [
        {
            "name": one.rfilename,
            "bytes": one.size,
            "sha256": one.lfs.sha256 if one.lfs else None,
            "git": one.blob_id,
        }
        for one in wanted
    ]
    return {"revision": info.sha, "files": files}
