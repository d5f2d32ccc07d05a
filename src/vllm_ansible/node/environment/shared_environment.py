"""An environment that several hosts share: one builds it, and each proves that it runs there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..build_command import BuildError, Report
from . import build as environment
from . import uv_command


def proof(cluster_dir: str, digest: str) -> Path:
    """Return where a host notes that it has imported the engine from there."""
    return Path(cluster_dir) / "environments" / f"{digest[:12]}.proof"


def proven(cluster_dir: str, digest: str, manifest: Mapping[str, Any]) -> bool:
    """Tell whether this host has imported what lies there now."""
    try:
        found = proof(cluster_dir, digest).read_text()
    except OSError:
        return False
    return bool(found) and found == manifest.get("fingerprint")


def build(wanted: dict[str, Any], report: Report) -> dict[str, Any]:
    """Build the environment for all, which ends with its imports on this host."""
    manifest = environment.build(wanted, report)
    _note(wanted, manifest)
    return manifest


def prove(wanted: dict[str, Any], report: Report) -> dict[str, Any]:
    """Import the engine from where another host has put it: this one may lack a library for it."""
    place = Path(wanted["directory"])
    manifest: dict[str, Any] = environment.look(place, wanted["digest"])["manifest"]
    versions = environment.check_imports(place, uv_command.build_environment(wanted), report)
    differ = environment.difference(manifest["versions"], versions)
    if differ:
        raise BuildError(
            "the shared environment is another one here than where it was built",
            expected="the versions of its manifest",
            found="; ".join(differ),
            where=str(place),
            fix="give all hosts the same system Python, or build on each (environment_shared_dir)",
        )
    _note(wanted, manifest)
    return manifest


def why_not(place: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Say why what another host has built cannot be used here, as modules fail."""
    interpreter = environment.python(place)
    if manifest and interpreter.is_symlink() and not interpreter.exists():
        found = f"its interpreter, {interpreter.resolve()}, is not on this host"
        fix = "install that Python here, too"
    else:
        found = f"no complete environment in {place}"
        fix = (
            "mount environment_shared_dir on every host, or leave it out: then each builds its own"
        )
    return {
        "msg": "this host cannot use the environment that the first one has built",
        "expected": "the environment of the first host, in a directory that both share",
        "found": found,
        "where": str(place),
        "fix": fix,
    }


def _note(wanted: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    path = proof(wanted["cluster_dir"], wanted["digest"])
    path.parent.mkdir(parents=True, exist_ok=True)
    for earlier in path.parent.glob("*.proof"):
        earlier.unlink()
    path.write_text(str(manifest["fingerprint"]))
