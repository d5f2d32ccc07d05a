"""What the engine's environment holds beside its lock: our packages, and what we have built."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..build_command import BuildError
from . import built_wheels, wheel

AGAIN = "run the stage install again, which builds it or takes it from the controller"


def built_records(cluster_dir: str, wheels: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the records of our own builds by name; each must be there, as it was built."""
    found = {}
    for one in wheels:
        record = built_wheels.look(cluster_dir, one["key"])
        if record is None:
            raise BuildError(
                f"the wheel of {one['name']} is not there",
                expected="a wheel that was built and brought before",
                found="none",
                where=str(built_wheels.place(cluster_dir, one["key"])),
                fix=AGAIN,
            )
        content = hashlib.sha256(Path(record["path"]).read_bytes()).hexdigest()
        if content != record["sha256"]:
            # Without its record it counts as missing.
            (Path(record["path"]).parent / built_wheels.RECORD).unlink()
            raise BuildError(
                f"the wheel of {one['name']} is damaged",
                expected=f"the SHA-256 {record['sha256']}",
                found=content,
                where=record["path"],
                fix=AGAIN,
            )
        found[one["name"]] = record
    return found


def digests(cluster_dir: str, wheels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the digests of those of our own builds that are there, by name."""
    records = {one["name"]: built_wheels.look(cluster_dir, one["key"]) for one in wheels}
    return {name: record["sha256"] for name, record in records.items() if record}


def write_lock(place: Path, requirements: Path, built: Sequence[str]) -> Path:
    """Return the lock without what we have built; it is the same file where that is nothing."""
    if not built:
        return requirements
    text = requirements.read_text()
    for name in built:
        # An entry is a line that begins with its name, and those indented below it.
        spelt = re.escape(name).replace(r"\-", "[-_.]+")
        entry = rf"^{spelt}(\[[^\]]*\])?[ =@;][^\n]*\n(?:[ \t][^\n]*\n)*"
        text = re.sub(entry, "", text, flags=re.MULTILINE | re.IGNORECASE)
    path = place / "lock.txt"
    path.write_text(text)
    return path


def write_packages(
    place: Path, packages: Sequence[dict[str, Any]], built: Sequence[Mapping[str, Any]]
) -> Path:
    """Pack our own packages as wheels beside the environment; return a lock of all our wheels."""
    folder = place / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for package in packages:
        content = wheel.wheel_bytes(package)
        path = folder / wheel.wheel_name(package["name"], package["version"])
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"{package['name']} @ {path.as_uri()} --hash=sha256:{digest}\n")
    for record in built:
        address = Path(record["path"]).as_uri()
        lines.append(f"{record['name']} @ {address} --hash=sha256:{record['sha256']}\n")
    (folder / "packages.txt").write_text("".join(lines))
    return folder / "packages.txt"
