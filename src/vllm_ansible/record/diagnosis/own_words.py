"""What a failing line says itself: its innermost message, and what that advises to do."""

from __future__ import annotations

import re

# What stands behind one of these is the reason of what stands before it.
_WRAPS = re.compile(
    "|".join(
        (
            r"[.:] Error: |(?<!often )(?<!usually )[Cc]aused by[: ]\s*|\bdesc = |\bstderr: ",
            r"<\w+ error |\bLast error:\s*",
            r"(?<![(.\w])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:_\w+)?: (?=\S)",
            r"\b(?:error running (?:\w+ )?hook #\d+|during container init|runc create failed): ",
            r"\bwhat\(\): +|\b[Rr]eason: |\b[Rr]oot cause: |[Dd]ue to: |\berr(?:or)?=\\?\"",
            r"\bdue to the following error: |\braised: |\bpanicked at \S+:\d+:\d+: ",
            r"^(?:\S+: )?(?:fatal|error): (?=\S)|\b(?:srun|sbatch|salloc): error: .{0,60}?failed: ",
            r"\bUnable to create step for job \S+: |\bpyxis:(?: {2,}| )(?:\[\w+\] )?",
            r"\bNVRM: ",
            # The explanation of uv's resolver.
            r"\u2570\u2500\u25b6 (?=Because )",
            # Of Rust's tracing: the module before the words, and the error among its fields.
            r"^[a-z_]\w*(?:::\w+)+: | error=(?=[^\s\"])",
            # A check of pydantic's, with or without the field that it is of.
            r"\b\d+ validation errors? for \S+ (?=\S)|\b(?:Value error|Assertion failed), (?=\S)",
        )
    )
)
# Where the words end: pydantic's input, a link to more, where it was raised.
_ENDS = re.compile(
    r"\[type=\w+, |(?: [a-z_]\w*=\"[^\"]*\")+$|For (?:further|more) information"
    r"|\((?:run with|function |most recent)"
    r"|(?:See|Please see|check the \w+ in:?|Checkout) https?:|https?://\S+\s*$|\n"
)
_ADVICE = re.compile(
    r"(?:(?<=[.!?:;,] )|^)(?P<advice>(?:[Pp]lease |[Tt]ry |[Dd]id you mean |[Cc]onsider "
    r"|[Tt]o (?:fix|avoid|resolve|enable|disable)\b|[Uu]se |[Ss]et |[Ii]nstall |[Uu]pgrade "
    r"|[Uu]pdate |[Ii]ncrease |[Dd]ecrease |[Rr]educe |[Ee]ither "
    r"|[Yy]ou (?:can|may|must|need|should) "
    r"|[Mm]ake sure |[Ee]nsure |[Rr]un |[Rr]aise |[Ll]ower |[Ss]pecify |[Pp]ass |[Ee]nable "
    r"|[Dd]isable |[Cc]hoose |[Rr]emove )"
    r"[^\n]{8,}?(?:[.!?](?=\s|$)|$))"
)
_LONGEST = 260


def innermost(line: str) -> str:
    """Return what stands behind the last of what a line wraps, the whole where it wraps nothing."""
    end = 0
    for found in _WRAPS.finditer(line):
        # Behind the last one there must be words; two of them say less than what wraps them.
        rest = line[found.end() :]
        if len(rest) >= 3 and (not end or len(rest.split(maxsplit=2)) > 2):
            end = found.end()
    return line[end:].strip()


def reason(line: str) -> str:
    """Return the innermost words of a line, as long as a person reads them, or nothing."""
    words = _unquoted(" ".join(_ENDS.split(innermost(line), maxsplit=1)[0].split()))
    if len(words) < 8 or " " not in words:
        return ""
    if len(words) > _LONGEST:
        cut = words[:_LONGEST].rfind(". ")
        words = words[: cut + 1] if cut > _LONGEST // 3 else f"{words[:_LONGEST]} ..."
    return words.rstrip(".,;:")


def _unquoted(words: str) -> str:
    """Return words without the quotes around them; those of a value at their end stay."""
    words = words.strip(" \\")
    for quote in "\"'":
        around = words[:1] == words[-1:] == quote and quote not in words[1:-1]
        if around or words.count(quote) % 2:
            words = words.strip(f"{quote} \\")
    return words


def advice(line: str) -> str:
    """Return what the words of a line say to do, or nothing."""
    words = " ".join(innermost(line).split())
    found = [one["advice"] for one in _ADVICE.finditer(words)]
    return " ".join(found)[:_LONGEST].rstrip(".,;: ")
