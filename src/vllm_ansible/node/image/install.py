"""Bring the engine's image to a host: room, checksum, load or pull, packages, and a proof."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ..build_command import (
    BuildError,
    Report,
    bytes_of,
    expect_success,
    last_lines,
    text_of,
    watch,
    working,
)
from ..environment import build as environment
from . import archive, recipe
from .beside import write_packages, write_python
from .command import TEMPORARY, Inside, client_environment, run_command
from .inner import python_script
from .room import existing_parent
from .tool import Tool
from .unpulled import unpulled

PIECE = 1 << 24
GIB = 1 << 30
# Run inside the image, as engines run. What it loads is what a server loads.
PROBE = """
import importlib.metadata, json, platform
import torch, vllm, vllm_guard.access
from vllm.platforms import current_platform
import vllm.entrypoints.cli.serve
try:
    import ray
except ImportError:
    ray = None
versions = {
    "python": platform.python_version(), "vllm": vllm.__version__, "torch": torch.__version__,
    "ray": getattr(ray, "__version__", ""), "platform": type(current_platform).__name__,
}
found = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
print("\\n" + json.dumps({"versions": versions, "distributions": found}))
"""


def look(place: Path, digest: str, tool: Tool) -> dict[str, Any]:
    """Tell whether what was proven is still there: one file and one question to the tool."""
    try:
        manifest: dict[str, Any] = json.loads((place / environment.MANIFEST).read_text())
    except (OSError, ValueError):
        return {"complete": False, "manifest": {}}
    there = tool.image(manifest["image"]["id"]) is not None
    same = manifest.get("digest") == digest and manifest["image"]["tool"] == tool.path
    return {"complete": there and same, "manifest": manifest}


def present(wanted: Mapping[str, Any], tool: Tool) -> Optional[dict[str, Any]]:
    """Return the image where the tool has it already, without reading a tar of many GB.

    wanted: name, file, sha256, directory.
    """
    if not wanted["sha256"]:
        return tool.image(wanted["name"])
    try:
        known = json.loads(known_path(wanted).read_text())
    except (OSError, ValueError):
        return None
    return loaded(known, tool) if known.get("sha256") == wanted["sha256"] else None


def known_path(wanted: Mapping[str, Any]) -> Path:
    """Return where it is kept what a tar has brought, beside all that is made of the same tar."""
    return Path(wanted["directory"]).parent / f".archive-{wanted['sha256'][:12]}.json"


def loaded(known: Mapping[str, Any], tool: Tool) -> Optional[dict[str, Any]]:
    """Return the image of an archive where it is loaded: by its id, or by a name and its layers."""
    for name in (known["id"], *known["names"]):
        found = tool.image(name) if name else None
        if found and found["layers"] == known["layers"]:
            return found
    return None


def expect_room(wanted: Mapping[str, Any], tool: Tool) -> None:
    """Raise BuildError where the tool's storage has no room for what is to be loaded."""
    storage = tool.storage()
    free = shutil.disk_usage(existing_parent(storage)).free
    need = archive.room(wanted["file"]) if wanted["sha256"] else GIB
    if free < need:
        raise BuildError(
            f"no room for the engine's image: {storage} has {free / GIB:.1f} GiB free, and it "
            f"takes about {need / GIB:.1f} GiB",
            expected=f"{need / GIB:.1f} GiB free",
            found=f"{free / GIB:.1f} GiB free",
            where=storage,
            fix=f"remove images that nothing uses (`{tool.kind} image prune`), or move the "
            "storage to a larger disk",
        )


def expect_checksum(path: str, sha256: str, report: Report) -> None:
    """Raise BuildError where a file is not the one that was promised."""
    total, done, digest = os.path.getsize(path), 0, hashlib.sha256()
    with open(path, "rb") as handle:
        for piece in iter(lambda: handle.read(PIECE), b""):
            digest.update(piece)
            done += len(piece)
            report(done, total, "bytes", "checking the image's checksum")
    if digest.hexdigest() != sha256:
        raise BuildError(
            f"{path} is not the expected image: its checksum differs",
            expected=f"SHA-256 {sha256}",
            found=f"SHA-256 {digest.hexdigest()} of {total} bytes",
            where=path,
            fix="copy it again, it may be cut off; or correct engine_image_sha256",
        )


def bring(wanted: dict[str, Any], tool: Tool, report: Report) -> dict[str, Any]:
    """Bring, prove and record the image; return the manifest, which is written last.

    wanted: name, file, sha256, directory (of its environment), digest, packages, own (our
    packages, as sources), settings (how containers are run), accelerator, writable (directories
    of the cluster), sources (names of what pip may read of this environment).
    """
    started = time.time()
    place = Path(wanted["directory"])
    place.mkdir(parents=True, exist_ok=True)
    (place / environment.MANIFEST).unlink(missing_ok=True)
    base = present(wanted, tool)
    if base is None:
        base = load(wanted, tool, report) if wanted["sha256"] else pull(wanted, tool, report)
    expect_architecture(base)
    found = derive(base, wanted, tool, report) if wanted["packages"] else base
    write_packages(place, wanted["own"])
    image = {
        **wanted["settings"],
        "id": found["id"],
        "packages": str(place / "packages"),
        "python_path": found["environment"].get("PYTHONPATH", ""),
    }
    told = probe(image, wanted["accelerator"], tool, report)
    write_python(place, python_script(image, wanted["accelerator"], (), wanted["writable"]))
    manifest = {
        "digest": wanted["digest"],
        "versions": told["versions"],
        # What a difference between hosts is named by.
        "distributions": {**told["distributions"], "image": _short(base["layers"])},
        "wheels": {},
        "fingerprint": fingerprint(base, wanted, told),
        "image": {"id": found["id"], "base": base["id"], "tool": tool.path}
        | {"packages": image["packages"], "python_path": image["python_path"]},
        "seconds": round(time.time() - started, 1),
    }
    partial = place / f"{environment.MANIFEST}.partial"
    partial.write_text(json.dumps(manifest, indent=1, sort_keys=True))
    partial.replace(place / environment.MANIFEST)
    return manifest


def fingerprint(base: Mapping[str, Any], wanted: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Return one value that is equal on two hosts exactly when they run the same code."""
    parts = [base["layers"], sorted(wanted["packages"]), wanted["own"], told]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load(wanted: Mapping[str, Any], tool: Tool, report: Report) -> dict[str, Any]:
    """Load the image of a tar; raise BuildError or Failure before anything is loaded, if it can."""
    path = wanted["file"]
    expect_room(wanted, tool)
    expect_checksum(path, wanted["sha256"], report)
    total = os.path.getsize(path)
    known = archive.told(
        path, lambda done: report(done, total, "bytes", "reading what the tar holds")
    )
    command = [tool.path, "load", "--input", path]

    def see(pid: int) -> None:
        report(min(bytes_of(pid, "rchar"), total), total, "bytes", f"{tool.kind} loads the image")

    _run(command, tool, see, f"{tool.kind} could not load the image")
    found = loaded(known, tool)
    if found is None:
        raise BuildError(
            "the image that was loaded is not the one of the tar",
            expected=f"layers {_short(known['layers'])}, id {known['id'][:12]}",
            found=f"none such under {', '.join(known['names']) or 'no name'}",
            where=path,
            fix="see what the tool has (`image ls`), remove an image of that name, run again",
        )
    known_path(wanted).write_text(json.dumps({**known, "sha256": wanted["sha256"]}))
    return found


def pull(wanted: Mapping[str, Any], tool: Tool, report: Report) -> dict[str, Any]:
    """Pull an image from its registry; raise BuildError with what mends it."""
    expect_room(wanted, tool)
    # Not quiet: what it prints, into no log, is how a long one is known to move.
    command = [tool.path, "pull", wanted["name"]]
    said = f"the image {wanted['name']} could not be pulled"
    try:
        _run(command, tool, working(f"{tool.kind} pulls {wanted['name']}", report), said)
    except BuildError as error:
        mend = {
            "where": "the registry of engine_image",
            "fix": unpulled(wanted["name"], tool, error),
        }
        raise BuildError(said, **{**error.details, **mend}) from error
    found = tool.image(wanted["name"])
    if found is None:
        raise BuildError(said, expected=wanted["name"], found="pulled, and not there", where="here")
    return found


def derive(
    base: Mapping[str, Any], wanted: Mapping[str, Any], tool: Tool, report: Report
) -> dict[str, Any]:
    """Return the image with packages layered in; the same tool builds it, once."""
    name = recipe.image_name(base["layers"], wanted["packages"])
    there = tool.image(name)
    if there is not None:
        return there
    variables = sorted(wanted["sources"])
    with tempfile.TemporaryDirectory() as context:
        Path(context, "Containerfile").write_text(recipe.containerfile(base["id"], variables))
        Path(context, recipe.FILE).write_text("".join(f"{one}\n" for one in wanted["packages"]))
        command = [tool.path, "build", "--network=host", f"--tag={name}"]
        # Each step would stay as an image without a name.
        command += ["--layers=false"] if tool.kind == "podman" else []
        command += [f"--ulimit={limit}" for limit in wanted["settings"]["limits"]]
        # By name: what they say may hold a password of a mirror.
        command += [f"--build-arg={variable}" for variable in variables]
        command += [f"--file={context}/Containerfile", context]
        said = "packages could not be layered into the image"
        _run(command, tool, working("layering packages in", report), said)
    found = tool.image(name)
    if found is None:
        raise BuildError(said, expected=name, found="built, and not there", where=tool.path)
    return found


def probe(image: Mapping[str, Any], accelerator: str, tool: Tool, report: Report) -> dict[str, Any]:
    """Import the engine in a container as engines run; return its versions and distributions."""
    values = {"HOME": TEMPORARY, "PYTHONDONTWRITEBYTECODE": "1"}
    name = f"vllm-ansible-probe-{os.getpid()}"
    inside = Inside(name, "python3", values, accelerator=accelerator)
    command = [*run_command(image, inside), "-c", PROBE]
    said = _run(command, tool, working("importing vllm and torch in the image", report), "")
    told: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return told


def expect_architecture(image: Mapping[str, Any]) -> None:
    """Raise BuildError for an image of another processor."""
    own = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    if image["architecture"] not in ("", own):
        raise BuildError(
            f"the image is made for {image['architecture']}, and this host is {own}",
            expected=own,
            found=image["architecture"],
            where=image["id"],
            fix="name the image of this architecture",
        )


def _run(command: list[str], tool: Tool, see: Any, said: str) -> str:
    values = {"PYTHONDONTWRITEBYTECODE": "1"}
    given = {**tool.environment, **client_environment(values)}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        status = watch(command, given, output, errors, see)
        text, complaint = text_of(output), text_of(errors)
    message = said or "the engine does not import inside the image"
    if said and status != 0:
        # What failed inside is told on one of them, what the tool makes of it on the other.
        message = f"{said}: {last_lines(text + complaint)}"
    expect_success(status, command, complaint or text, message)
    return text


def _short(layers: list[str]) -> str:
    """Return one digest of an image's layers."""
    return hashlib.sha256(json.dumps(layers).encode()).hexdigest()[:12]
