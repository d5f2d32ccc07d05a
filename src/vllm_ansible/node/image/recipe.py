"""A small image on top of the engine's own: the same recipe on every host, so the same content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence

# name==version, with extras; nothing that could be an option of pip or a second line.
NAME, VERSION = r"[A-Za-z0-9][A-Za-z0-9._-]*", r"[A-Za-z0-9][A-Za-z0-9.+!_-]*"
PINNED = re.compile(rf"{NAME}(\[[A-Za-z0-9._,-]+\])?=={VERSION}")
FILE = "requirements.txt"
PIP = ("python3", "-m", "pip", "install", "--no-cache-dir", "--requirement")


def containerfile(base: str, variables: Iterable[str]) -> str:
    """Return how packages are layered in; variables: what pip may read of its environment."""
    place = f"/etc/vllm-ansible-{FILE}"
    arguments = "".join(f"ARG {name}\n" for name in sorted(variables))
    install = json.dumps([*PIP, place])
    return f"FROM {base}\nUSER 0\n{arguments}COPY {FILE} {place}\nRUN {install}\n"


def image_name(layers: Sequence[str], packages: Sequence[str]) -> str:
    """Return the name of the image: a digest of what is below and of what is added."""
    text = json.dumps([list(layers), sorted(packages)])
    return f"localhost/vllm-ansible-engine:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
