"""A large file of a host, read in pieces over whatever connection and privileges a task has."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.host.kept_files import KeptError

# A piece is in memory on both sides, four thirds as large and several times over.
PIECE_BYTES = 16 << 20
# Runs the module file_piece with these arguments and returns its result.
Read = Callable[[dict[str, Any]], Mapping[str, Any]]


def bring(path: str, size: int, read: Read, show: Callable[[int], None]) -> Callable[[Path], None]:
    """Return what writes the file of `size` bytes to a path of the controller.

    `show` is told the bytes that are there. Raises KeptError where the file ends early or cannot
    be read.
    """

    def write(target: Path) -> None:
        done = 0
        with target.open("wb") as handle:
            while done < size:
                answer = read({"path": path, "start": done, "size": PIECE_BYTES})
                if "content" not in answer:
                    raise KeptError(answer.get("msg", "file_piece gave no answer"))
                piece = base64.b64decode(answer["content"])
                if not piece:
                    raise KeptError(f"it ends after {done} bytes")
                handle.write(piece)
                done += len(piece)
                show(done)

    return write
