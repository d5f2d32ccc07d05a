"""Keep secrets out of what is written for people."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "<hidden>"

# `max_tokens` and `output_tokens_per_second` are figures, `hf_token` is none; a name that ends in
# `_path` says where a secret lies.
_NAME = r"[\w.\-]*(?:(?:api|private|access)[_-]?key|token|secret|passw(?:or)?d|_pass|passphrase)"
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_SHAPES = [
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), replacement)
    for pattern, replacement in (
        (rf"\b({_NAME}=)(['\"]?)[^\s\"',;}}]+", rf"\1\2{HIDDEN}"),
        (rf"(['\"]{_NAME}['\"]\s*:\s*)(['\"])(?:(?!\2).)+\2", rf"\1\2{HIDDEN}\2"),
        # A line of YAML; in a sentence a word before a colon is no assignment.
        (rf"^(\s*{_NAME}:\s+)\S+$", rf"\1{HIDDEN}"),
        (r"(--(?:hf-)?(?:api-key|token|password) +)\S+", rf"\1{HIDDEN}"),
    )
]
_KNOWN = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}\b|\bsk-[A-Za-z0-9_-]{16,}\b|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


def redact_text(text: str) -> str:
    """Return the text with everything that looks like a secret hidden."""
    text = _KNOWN.sub(HIDDEN, text)
    for shape, replacement in _SHAPES:
        text = shape.sub(replacement, text)
    return text


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
    return isinstance(item, str) and bool(item) and bool(_SECRET_NAME.fullmatch(name))
