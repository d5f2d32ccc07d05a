"""What a model of the hub consists of, asked once for each commit."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .models import Model
from .programs import Program, write
from .store.disk_failure import disk_errors_told
from .store.shelf import Shelf
from .weights import environment

COMMIT = re.compile("[0-9a-f]{40}")
LOOK_SECONDS = 0.2


def ask(model: Model, wanted: Mapping[str, Any], check: bool = False) -> dict[str, Any]:
    """Return model, revision and files; asks the hub unless the revision is a commit it asked for.

    wanted: models_dir, python, program, include, exclude, token_path, environment.
    Raises WeightsError in the hub program's words, Failure where the disk refuses.
    """
    request = {
        "action": "manifest",
        "model": model.name,
        "revision": model.revision,
        "include": list(wanted["include"]),
        "exclude": list(wanted["exclude"]),
    }
    path = os.path.join(Shelf(wanted["models_dir"], model.slug()).store, "manifest.json")
    kept = _read(path)
    if kept and kept["request"] == request and COMMIT.fullmatch(model.revision):
        return dict(kept["manifest"])
    manifest = {"model": model.name, **_asked(request, wanted)}
    if not check:
        with disk_errors_told(wanted["models_dir"]):
            _write(path, {"request": request, "manifest": manifest})
    return manifest


def _write(path: str, content: Mapping[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.partial", "w", encoding="utf-8") as handle:
        json.dump(content, handle)
    os.replace(f"{path}.partial", path)


def _asked(request: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        asked = os.path.join(place, "request.json")
        with open(asked, "w", encoding="utf-8") as handle:
            json.dump(request, handle)
        main = write(os.path.join(place, "program"), wanted["program"])
        program = Program([wanted["python"], main, asked], environment(wanted))
        while not program.wait(LOOK_SECONDS):
            pass
    said = {key: message for message in program.news() for key in message}
    what = f"the hub does not say what {request['model']} consists of"
    program.judge(what, str(request["model"]), said.get("failed"))
    return dict(said["result"]["result"])


def _read(path: str) -> dict[str, Any]:
    with suppress(OSError, ValueError), open(path, encoding="utf-8") as handle:
        return dict(json.load(handle))
    return {}
