"""The program that talks to the hub, as the role sends it: text by file name."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parents[3] / "roles/weights/files/hub"
PROGRAM = {path.name: path.read_text() for path in sorted(DIRECTORY.glob("*.py"))}
