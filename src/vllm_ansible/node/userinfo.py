"""Find the names and passwords that stand before the host of an address."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A name alone is one that everybody knows there: git@, who logs in over SSH. To HTTP it is a token.
_NAME_IS_SECRET = ("http", "https")
# By RFC 2224 their addresses name no user, and a path holds any character: nfs://filer:/export@a.
_NO_PASSWORD = ("nfs", "nfs4")
_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]{0,30}\Z", re.IGNORECASE)
_AUTHORITY = re.compile(r"""://([^\s/?#"'<>\\]*)""")
_PORT = re.compile(r":\d{1,5}\Z")
_END = re.compile(r"""[\s"'<>]""")
# Longer passwords are not written into addresses; without a bound, every address of a long line
# would be looked through to the line's end.
_LONGEST = 512


def secrets(text: str) -> Iterator[tuple[int, int]]:
    """Return where each password, or each name that is all there is, begins and ends.

    An authority ends at the first slash, a password at its last @. Where no @ is before the slash,
    and what is there is no host with a port, the password holds the slash.
    """
    for match in _AUTHORITY.finditer(text):
        first = max(0, match.start() - 32)
        scheme = _SCHEME.search(text[first : match.start()])
        begin, authority = match.start(1), match[1]
        length = authority.rfind("@")
        if not scheme or authority.startswith("["):
            continue
        mount = scheme[0].lower() in _NO_PASSWORD
        if length < 0 and not mount and ":" in authority and not _PORT.search(authority):
            window = text[begin : begin + _LONGEST]
            end = _END.search(window)
            length = (window[: end.start()] if end else window).rfind("@")
        if length <= 0:
            continue
        name, colon, _ = text[begin : begin + length].partition(":")
        if colon:
            begin, length = begin + len(name) + 1, length - len(name) - 1
        elif scheme[0].lower().rpartition("+")[2] not in _NAME_IS_SECRET:
            continue
        if length > 0:
            yield begin, begin + length
