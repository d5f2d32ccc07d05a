"""Keep secrets, and what would steer a terminal, out of what is written for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from vllm_ansible.node import launcher, userinfo

from . import shapes
from .shapes import HIDDEN, SECRET_NAME

_KNOWN = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}\b|\bsk-[A-Za-z0-9_-]{16,}\b|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
    # AWS: the ID of a key, with the secret where it follows as in a table, and a session's token.
    r"|\bA[KS]IA[A-Z2-7]{16}\b(?:[\s,;:|/\"']{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?"
    r"|\b(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9/+]{20,}={0,2}"
    # RunPod, and what else a host or a controller is often given: NVIDIA, GitHub, GitLab.
    r"|\brpa_[A-Za-z0-9]{16,}\b|\bnvapi-[A-Za-z0-9_-]{16,}\b"
    r"|\b(?:gh[oprsu]_|github_pat_|glpat-)[A-Za-z0-9_-]{16,}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


# All but tab and new line: they move the cursor, retitle the window, write over what stands there.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# The colours of the console, and back to the first column to write over a line of progress.
_OWN_CONTROLS = re.compile(r"\r|\x1b\[[0-9;]*[mK]")
_known: set[str] = set()


def learn(words: Iterable[str]) -> None:
    """Know secrets by what they are: they are hidden from now on wherever they stand."""
    _known.update(word for word in words if len(word) >= launcher.SHORTEST_SECRET)


def learn_files(paths: Iterable[Path]) -> None:
    """Know what lies in files of secrets: one word alone, or what has the name of a secret."""
    for path in paths:
        try:
            text = path.read_text()
        except (OSError, ValueError):
            continue
        learn(launcher.secret_words(text))


def learn_lines(paths: Iterable[Path]) -> None:
    """Know each line of files that hold one secret a line."""
    for path in paths:
        try:
            lines = path.read_text().splitlines()
        except (OSError, ValueError):
            continue
        learn(line.strip() for line in lines if not line.lstrip().startswith("#"))


def learn_environment(variables: Mapping[str, Any]) -> None:
    """Know the passwords of variables: of those that have the name of a secret, and in addresses.

    A program may print one without its address, and as it is when nothing in it is quoted.
    """
    for name, value in variables.items():
        text = str(value)
        found = [text[begin:end] for begin, end in userinfo.secrets(text)]
        found += [text] if SECRET_NAME.fullmatch(str(name)) else []
        learn(one for word in found for one in (word, unquote(word)))


def visible(text: str, own: bool = False) -> str:
    """Return a text whose control characters are shown instead of obeyed.

    Of `own` text the colours of the console and its way back to the first column stay.
    """

    def shown(match: re.Match[str]) -> str:
        if own and (kept := _OWN_CONTROLS.match(text, match.start())):
            return kept[0][0]
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _CONTROLS.sub(shown, text)


def redact_text(text: str) -> str:
    """Return the text with everything that is known, or looks like, a secret hidden."""
    for word in sorted(_known, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return shapes.hide(_KNOWN.sub(HIDDEN, text))


def redact(value: Any) -> Any:
    """Return a copy of plain data in which secrets, by name or by shape, are hidden."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {
            str(key): HIDDEN if _is_secret(str(key), item) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(item) for item in value]
    return value


def _is_secret(name: str, item: Any) -> bool:
    words = item if isinstance(item, list | tuple) else [item]
    is_text = bool(words) and all(isinstance(one, str) and one for one in words)
    return is_text and bool(SECRET_NAME.fullmatch(name))
