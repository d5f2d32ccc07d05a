"""A small image on top of the engine's own: the same recipe on every host, so the same content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import userinfo
from ..failure import Failure

# name==version, with extras; nothing that could be an option of pip or a second line.
NAME, VERSION = r"[A-Za-z0-9][A-Za-z0-9._-]*", r"[A-Za-z0-9][A-Za-z0-9.+!_-]*"
PINNED = re.compile(rf"{NAME}(\[[A-Za-z0-9._,-]+\])?=={VERSION}")
# A name with a password, or a token, before the host of an address.
IN_ADDRESS = re.compile(r"://[^/\s@]+@")
ADVICE = (
    "name a mirror or proxy that asks for none, or put the packages into the image before it comes "
    "here and leave engine_image_packages out"
)
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


def secret_names(variables: Mapping[str, Any]) -> list[str]:
    """Return which variables hold a password: an image tells what it was built with."""
    return sorted(
        name
        for name, value in variables.items()
        if IN_ADDRESS.search(str(value)) or any(userinfo.secrets(str(value)))
    )


def expect_no_secrets(variables: Mapping[str, Any]) -> None:
    """Raise Failure where a password would come into the image with its packages."""
    names = secret_names(variables)
    if names:
        raise Failure(
            f"packages cannot be layered into the image with a password in {', '.join(names)}: "
            "its history shows it to anyone who has the image",
            expected="addresses without a name or a password",
            found="a name or a password before the @ of an address",
            where="sources_environment",
            fix=ADVICE,
        )
