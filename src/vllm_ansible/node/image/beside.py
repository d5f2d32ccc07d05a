"""What lies on the host beside the engine's image: our own packages, and the image's Python."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

from ..environment.build import python
from ..environment.wheel import wheel_bytes


def write_packages(place: Path, packages: list[dict[str, Any]]) -> None:
    """Lay our own packages beside the image: engines see them read-only, on PYTHONPATH.

    Whole, as if they were installed: vLLM finds its plugins by their metadata.
    """
    folder = place / "packages"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package in packages:
        with zipfile.ZipFile(io.BytesIO(wheel_bytes(package))) as wheel:
            wheel.extractall(folder)
    for path in [place, folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def write_python(place: Path, script: str) -> None:
    """Lay the image's Python where that of a built environment is."""
    path = python(place)
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
