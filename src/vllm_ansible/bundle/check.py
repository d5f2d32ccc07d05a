"""Judge a bundle before anything starts: whole, of this project, enough for this inventory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm_ansible.problem import Problem

from . import start, wanted

NAME = "sources_bundle"
# The variables of a host that are judged beside it.
READ = ("engines", "engine_python", "sources_environment", "object_storage_endpoint")
AGAIN = "make it again from this project: vllm-ansible bundle"


def problems(bundle: str, repository: Path, variables: Mapping[str, Any]) -> list[Problem]:
    """Return the first thing that is wrong with a bundle, in one sentence, or nothing.

    variables are those of one host: what engines serve and what else can be reached.
    """
    place = Path(bundle).expanduser()
    try:
        _verify(place)
    except start.BundleError as error:
        said, _, fix = str(error).rpartition("; ")
        return [Problem(said, expected="every file as it was packed", where=NAME, fix=fix)]
    manifest = json.loads((place / start.MANIFEST).read_text())
    return _outdated(manifest, repository) or _lacking(manifest, variables)


def _outdated(manifest: Mapping[str, Any], repository: Path) -> list[Problem]:
    had = manifest["locks"]
    now = wanted.lock_digests(repository, sorted(had))
    differ = [f"requirements/{name}.txt" for name in had if had[name] != now[name]]
    if not differ:
        return []
    message = f"the bundle is outdated: it was made from another {', '.join(differ)}"
    return [Problem(message, expected="the locks of this project", where=NAME, fix=AGAIN)]


def _lacking(manifest: Mapping[str, Any], variables: Mapping[str, Any]) -> list[Problem]:
    python = str(variables.get("engine_python") or wanted.DEFAULT_PYTHON)
    if python != manifest["engine_python"]:
        message = f"the bundle has an engine for Python {manifest['engine_python']}, not {python}"
        return [Problem(message, where=NAME, fix=AGAIN)]
    models = wanted.models_of([variables])
    there = wanted.package_lines(list(models.values()))
    absent = [name for name, line in there.items() if manifest["models"].get(name) != line]
    if absent:
        message = f"the bundle is outdated: it has another {', '.join(absent)}, or none"
        return [Problem(message, where=NAME, fix=AGAIN)]
    outside = wanted.outside(models, variables)
    if outside:
        message = f"the bundle does not carry the weights of {', '.join(outside)}"
        fix = (
            "carry them as a directory and name its path as the model, or name a mirror: "
            "HF_ENDPOINT in sources_environment"
        )
        return [Problem(message, where="engines", fix=fix)]
    return []


def _verify(place: Path) -> None:
    """Read every file that was not read since it was last written: gigabytes take seconds."""
    kept = _kept(place)
    known: dict[str, list[int]] = {}
    with suppress(OSError, ValueError):
        known = json.loads(kept.read_text())
    start.verify(place, known)
    stamps = {name: start.stamp(place / name) for name in start.listed(place)}
    if stamps != known:
        # A home that cannot be written costs the seconds again, nothing else.
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(stamps))


def _kept(place: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        sums = (place / start.SUMS).read_bytes()
    except OSError:
        sums = b""
    name = hashlib.sha256(str(place.resolve()).encode() + sums).hexdigest()[:16]
    return cache / "vllm-ansible" / "bundles" / f"{name}.json"
