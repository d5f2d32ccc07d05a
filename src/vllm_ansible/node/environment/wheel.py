"""Pack a pure Python package into a wheel, always byte for byte the same, without a backend."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from typing import Any

# The first moment a zip archive can name; any fixed one would do.
MOMENT = (1980, 1, 1, 0, 0, 0)


def wheel_name(name: str, version: str) -> str:
    """Return the file name of the wheel."""
    return f"{_distribution(name)}-{version}-py3-none-any.whl"


def wheel_bytes(package: dict[str, Any]) -> bytes:
    """Return the wheel of a package: name, version, summary, entry points, files by path."""
    folder = f"{_distribution(package['name'])}-{package['version']}.dist-info"
    members: list[tuple[str, bytes]] = [
        (path, text.encode()) for path, text in sorted(package.get("files", {}).items())
    ]
    members.append((f"{folder}/METADATA", _metadata(package)))
    members.append((f"{folder}/WHEEL", b"Wheel-Version: 1.0\nGenerator: vllm-ansible\n" + _TAGS))
    if package.get("entry_points"):
        members.append((f"{folder}/entry_points.txt", _entry_points(package["entry_points"])))
    members.append((f"{folder}/RECORD", _record(members, folder)))

    buffer = io.BytesIO()
    # Stored, not deflated: another zlib may compress the same text to other bytes.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, content in members:
            entry = zipfile.ZipInfo(path, MOMENT)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


_TAGS = b"Root-Is-Purelib: true\nTag: py3-none-any\n"


def _distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _metadata(package: dict[str, Any]) -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {package['name']}", f"Version: {package['version']}"]
    if package.get("summary"):
        lines.append(f"Summary: {package['summary']}")
    return ("\n".join(lines) + "\n").encode()


def _entry_points(groups: dict[str, dict[str, str]]) -> bytes:
    lines: list[str] = []
    for group, points in sorted(groups.items()):
        lines.append(f"[{group}]")
        lines += [f"{name} = {target}" for name, target in sorted(points.items())]
    return ("\n".join(lines) + "\n").encode()


def _record(members: list[tuple[str, bytes]], folder: str) -> bytes:
    lines = []
    for path, content in members:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    lines.append(f"{folder}/RECORD,,")
    return ("\n".join(lines) + "\n").encode()
