"""What a model consists of, by the hub, asked once for each commit, or by object storage."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from . import kept_digests
from .fetch import environment
from .models import Model
from .programs import Program, write
from .safetensors import WeightsError
from .store.disk_failure import disk_errors_told
from .store.shelf import Shelf

COMMIT = re.compile("[0-9a-f]{40}")
LOOK_SECONDS = 0.2
Report = Callable[..., None]


def ask(
    model: Model,
    wanted: Mapping[str, Any],
    check: bool = False,
    report: Report = lambda *_: None,
    reads: bool = False,
) -> dict[str, Any]:
    """Return model, revision and files; asks unless the revision is a commit it asked for.

    Of object storage also `read`, the bytes of files that were read for their digests, now or
    before, as nobody recorded any, and for each file whether it was one. In check mode files may
    have no digest; else one that has none is refused.
    reads: whether to read files for their digests now, which may take hours.
    wanted: models_dir, python, program, include, exclude, environment, token_path,
    credentials_path.
    Raises WeightsError in the program's words, Failure where the disk refuses.
    """
    request: dict[str, Any] = {
        "action": "manifest",
        "model": model.name,
        "revision": model.revision,
        "include": list(wanted["include"]),
        "exclude": list(wanted["exclude"]),
    }
    shelf = Shelf(wanted["models_dir"], model.slug())
    if model.source == "s3":
        request["kept"] = kept_digests.path(shelf)
        request["reads"] = reads and not check
        request["ends_with_input"] = True  # it may read for long
    path = os.path.join(shelf.store, "manifest.json")
    kept = _read(path)
    if kept and kept["request"] == request and COMMIT.fullmatch(model.revision):
        return dict(kept["manifest"])
    manifest = {"model": model.name, **_asked(request, wanted, report)}
    if model.source == "s3":
        manifest["files"] = kept_digests.marked(shelf, manifest["files"])
    if not check:
        _refuse_unproven(manifest)
        with disk_errors_told(wanted["models_dir"]):
            _write(path, {"request": request, "manifest": manifest})
    return manifest


def _refuse_unproven(manifest: Mapping[str, Any]) -> None:
    """Refuse files whose content nothing could prove."""
    files = manifest["files"]
    names = [one["name"] for one in files if not (one["sha256"] or one["git"])]
    if names:
        model = manifest["model"]
        raise WeightsError(
            f"objects of {model} changed after their digests were found",
            expected="the objects that were there then, each with a digest",
            found=f"{len(names)} others: {', '.join(names[:8])}",
            where=model,
            fix="once nothing writes there, run the same command again, which reads only these",
        )


def _write(path: str, content: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.partial", "w", encoding="utf-8") as handle:
        json.dump(content, handle)
    os.replace(f"{path}.partial", path)


def _asked(request: Mapping[str, Any], wanted: Mapping[str, Any], report: Report) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        asked = os.path.join(place, "request.json")
        with open(asked, "w", encoding="utf-8") as handle:
            json.dump(request, handle)
        main = write(os.path.join(place, "program"), wanted["program"])
        program = Program([wanted["python"], main, asked], environment(wanted))
        said: dict[str, Any] = {}
        ended = False
        while not ended:
            ended = program.wait(LOOK_SECONDS)
            said.update({key: message for message in program.news() for key in message})
            if "progress" in said:
                report(*said["progress"]["progress"])
    what = f"no list of the files of {request['model']}"
    program.judge(what, str(request["model"]), said.get("failed"))
    return dict(said["result"]["result"])


def _read(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as handle:
        return dict(json.load(handle))
    return {}
