"""Hide what stands where secrets stand: behind their names, in addresses, in headers.

Every pattern reads a character a fixed number of times at most: a line of a log has any length.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from vllm_ansible.node import launcher, userinfo

HIDDEN = launcher.HIDDEN

# `max_tokens` and `output_tokens_per_second` are figures, `hf_token` is none; a name that ends in
# `_path` says where a secret lies.
_WORDS = (
    r"(?:(?:api|private|access|secret)[_-]?key|token|secret|passw(?:or)?d|_pass|pgpass|passphrase"
    r"|x-(?:amz|goog)-signature)"
)
SECRET_NAME = re.compile(rf"[\w.\-]*{_WORDS}", re.IGNORECASE)
_ENDS_SO = re.compile(rf"{_WORDS}\Z", re.IGNORECASE)
# What signs a request; elsewhere these words say something else.
_OF_A_QUERY = ("sig", "signature")
_LONGEST_NAME = 200

# A name, the quote that ends it, and what assigns to it. A name is one run: it begins once.
_ASSIGNED = re.compile(r"""(?<![\w.\-])([\w.\-]+)(\\*['"]\]?)?([ \t]*)([=:])([ \t]*)""")
_LINE_BEGINS = re.compile(r"""[ \t]*(?:-[ \t]+|export[ \t]+)?['"]?\Z""")
# A backslash before a quote or an n is of the text around it.
_BARE = re.compile(r"""(?:[^\s"',;}\[\\]|\\(?!["'n\\]))+""")
_OF_A_QUERY_VALUE = re.compile(r"""[^\s"',;}\[\\&#]+""")
# All that is left of a line is one word: in a sentence more would follow.
_ONE_WORD = re.compile(r"\S+(?=[ \t]*(?:[ \t]#.*)?\r?$)", re.MULTILINE)
_QUOTES = {quote: re.compile(rf"(\\*){quote}|\n") for quote in "\"'"}
_OPENS = re.compile(r"""(\\*)(["'])""")
_LIST_HOLDS = 2048
_LIST = re.compile(
    r"""\[(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\]'"])*(?=\])""",
)
# A header as curl is given it is no longer.
_HEADER_HOLDS = 4096

_OPTION = re.compile(
    r"""(--(?:hf-)?(?:api-key|token|password) +)(?:"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|[^\s"']+)""",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"""(authorization\\*['"]?[ \t]*[:=,][ \t]*\\*['"]?)"""
    r"""(?:((?:basic|bearer|negotiate|token|apikey)[ \t]+)[^\s"'\\,]{8,}"""
    r"""|((?:digest|aws4-hmac-sha256)[ \t]+)[^\r\n]+)""",
    re.IGNORECASE,
)
_BASIC = re.compile(r"(?<![\w])(Basic +)([A-Za-z0-9+/]{4,}={0,2})(?![\w+/=])", re.IGNORECASE)


def hide(text: str) -> str:
    """Return a text in which everything that stands where a secret stands is hidden."""
    text = _HEADER.sub(lambda match: f"{match[1]}{match[2] or match[3]}{HIDDEN}", text)
    text = _BASIC.sub(_credentials, text)
    text = _OPTION.sub(rf"\1{HIDDEN}", text)
    text = _without(text, _values(text))
    return _without(text, userinfo.secrets(text))


def _without(text: str, places: Iterator[tuple[int, int]]) -> str:
    """Return a text with these parts of it, in order, hidden."""
    pieces, last = [], 0
    for begin, end in places:
        if begin >= last and end > begin:
            pieces += [text[last:begin], HIDDEN]
            last = end
    return "".join([*pieces, text[last:]]) if pieces else text


def _credentials(match: re.Match[str]) -> str:
    """Hide a name with a password; what only looks like one has no colon."""
    padded = match[2].rstrip("=") + "=" * (-len(match[2].rstrip("=")) % 4)
    try:
        known = b":" in base64.b64decode(padded, validate=True)
    except (binascii.Error, ValueError):
        known = False
    return f"{match[1]}{HIDDEN}" if known else match[0]


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Return where each value begins and ends that has the name of a secret."""
    position, bracket = 0, -1
    while match := _ASSIGNED.search(text, position):
        position = match.end()
        name = match[1][-_LONGEST_NAME:]
        before = text[match.start() - 1] if match.start() else "\n"
        of_query = before in "?&"
        if not _ENDS_SO.search(name) and not (of_query and name.lower() in _OF_A_QUERY):
            continue
        if text.startswith("[", position):
            if bracket < position:
                bracket = text.find("]", position)
                bracket = len(text) if bracket < 0 else bracket
            inside = (position + 1, _end_of_list(text, position, bracket))
        else:
            inside = _value(text, match, before, of_query)
        if inside[1] > inside[0]:
            yield inside
            position = inside[1]


def _value(text: str, match: re.Match[str], before: str, of_query: bool) -> tuple[int, int]:
    """Return where the value behind a name begins and ends; it is empty where there is none."""
    position, nothing = match.end(), (0, 0)
    _, closes, gap, sign, room = match.groups(default="")
    if sign == ":" and not room and not closes:
        return nothing
    spaced = bool(gap or room) if sign == "=" else not closes
    alone = spaced and _begins_line(text, match.start())
    if opened := _OPENS.match(text, position):
        # In a sentence a word before a colon is no assignment.
        if sign == ":" and spaced and not alone:
            return nothing
        return opened.end(), _end_of_quoted(text, opened)
    if sign == ":" and before in "\"'" and not closes:
        end = text.find(before, position, position + _HEADER_HOLDS)
        if end >= 0 and "\n" not in text[position:end]:
            return position, end
    if not spaced:
        found = None
        if sign == "=":
            found = (_OF_A_QUERY_VALUE if of_query else _BARE).match(text, position)
    else:
        found = _ONE_WORD.match(text, position) if alone else None
    return (position, found.end()) if found else nothing


def _begins_line(text: str, position: int) -> bool:
    """Tell whether nothing but room stands before a place on its line."""
    first = max(text.rfind("\n", max(0, position - _LONGEST_NAME), position) + 1, 0)
    if first == 0 and position > _LONGEST_NAME:
        return False
    return bool(_LINE_BEGINS.match(text[first:position]))


def _end_of_quoted(text: str, opened: re.Match[str]) -> int:
    """Return where a quoted value ends: at its quote, of the same depth, or with its line."""
    depth, quote = len(opened[1]), opened[2]
    position = opened.end()
    while match := _QUOTES[quote].search(text, position):
        if match[0] == "\n":
            return match.start()
        escaped = len(match[1]) > depth if depth else len(match[1]) % 2 == 1
        doubled = (
            quote == "'" and match.start() > opened.end() and text.startswith(quote, match.end())
        )
        if not escaped and not (doubled and not depth):
            return match.start()
        position = match.end() + (doubled and not escaped)
    return len(text)


def _end_of_list(text: str, begin: int, bracket: int) -> int:
    """Return where a list ends: at its bracket if that is near, else with its line."""
    if found := _LIST.match(text, begin, begin + _LIST_HOLDS):
        return found.end()
    if bracket - begin <= _LIST_HOLDS:
        return bracket
    end = text.find("\n", begin)
    return len(text) if end < 0 else end
