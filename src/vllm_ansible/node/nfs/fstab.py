"""The line of fstab that says what is mounted at a path when the host boots."""

from __future__ import annotations

import re
from typing import Optional

Line = dict[str, str]


def in_fstab(path: str, text: str) -> Optional[Line]:
    """Return point, source, kind and options that a text of fstab has for a path; None for none."""
    # Of several lines, mount and systemd take the first.
    return next((one for one in map(parsed, text.split("\n")) if is_for(path, one)), None)


def with_line(text: str, path: str, source: str, kind: str, options: str) -> str:
    """Return a text of fstab with one line for a path, where its first was or else at the end."""
    wanted = {"source": source, "kind": kind, "options": options}
    lines = text.removesuffix("\n").split("\n") if text else []
    places = [number for number, line in enumerate(lines) if is_for(path, parsed(line))]
    found = parsed(lines[places[0]]) if places else None
    if len(places) == 1 and found and {name: found[name] for name in wanted} == wanted:
        return text
    line = " ".join([*map(escaped, (source, path, kind, options)), "0", "0"])
    kept = [one for number, one in enumerate(lines) if number not in places]
    kept.insert(places[0] if places else len(kept), line)
    return "".join(f"{one}\n" for one in kept)


def is_for(path: str, line: Optional[Line]) -> bool:
    """Tell whether a line is for a path; only a slash at the end may differ."""
    return line is not None and line["point"].rstrip("/") == path.rstrip("/")


def parsed(line: str) -> Optional[Line]:
    """Return point, source, kind and options of a line; None for what is no file system."""
    words = [] if line.lstrip().startswith("#") else line.split()
    if len(words) < 3:
        return None
    source, point, kind, options = map(unescaped, [*words, ""][:4])
    return {"point": point, "source": source, "kind": kind, "options": options}


def unescaped(word: str) -> str:
    """Return a word of fstab, which writes white space and the like as octal numbers."""
    return re.sub(r"\\(\d{3})", lambda at: chr(int(at[1], 8)), word)


def escaped(word: str) -> str:
    """Return a word as fstab writes it."""
    return re.sub(r"[\s\\#]", lambda at: f"\\{ord(at[0]):03o}", word)
