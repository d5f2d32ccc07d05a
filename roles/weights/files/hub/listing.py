"""What a model consists of, by the hub's own record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import answers
from choosing import chosen
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from patience import ATTEMPTS, Patience


def manifest(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the commit and the wanted files, with their sizes and hashes."""
    model, revision = request["model"], request.get("revision") or None
    patience = Patience(request.get("attempts", ATTEMPTS), answers)
    info = patience(
        lambda: HfApi().model_info(model, revision=revision, files_metadata=True, timeout=30)
    )
    found = {one.rfilename: one for one in info.siblings or []}
    wanted = [found[name] for name in chosen(list(found), request, f"{model} at {info.sha}")]
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
