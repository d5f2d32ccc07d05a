"""Read a line of a log: who wrote it, when, and whether it tells of a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# month, day, hour, minute, second, millisecond: vLLM writes no year.
Moment = tuple[int, int, int, int, int, int]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^\((?P<name>[A-Za-z_][\w.\- ]*?) pid=\d+(?:, ip=(?P<ip>[\d.a-fA-F:]+))?\)\s?"
)
_LEVEL = re.compile(r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b[ :]*")
_TIMES = (
    # Ray and most others: 2026-11-20 10:31:02,123 or with a T
    re.compile(
        r"\b\d{4}-(?P<mo>\d\d)-(?P<d>\d\d)[ T](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
        r"(?:[.,](?P<ms>\d{3}))?"
    ),
    # vLLM: 11-20 10:31:02; after the full date, of which it is a part
    re.compile(r"\b(?P<mo>\d\d)-(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\b"),
    # glog, as torch writes: [W1120 10:40:31.757867347
    re.compile(
        r"^\[?[IWEF](?P<mo>\d\d)(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<ms>\d{3})"
    ),
)
_LOCATION = re.compile(r"^\[[\w./-]+:\d+\]\s?")
_RAY_LOCATION = re.compile(r"^[\w./-]+:\d+ -- ")

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|Exit|Interrupt|Failure)\b(?::|$)"
    r"|^Exception: "
)
_DEATH = re.compile(
    r"Segmentation fault|core dumped|\bOut of memory\b|\bOOM-?kill|CUDA out of memory"
    r"|^Killed$|terminate called after throwing|Fatal Python error|^Aborted\b|^error: "
    r"|\berror: (?:unrecognized|argument|the following) "
)
# Parts of a traceback: its head, its frames, their source lines and carets.
_FRAME = re.compile(r"^(?:Traceback \(most recent call last\):|\s+\S.*|\s*\^+|)$")
_FOLLOW_UP = re.compile(
    "|".join(
        (
            r"See (?:root cause|stack trace|the stack trace|logs?) (?:above|for)",
            r"\bEngineCore (?:failed to start|encountered a fatal error)|EngineDeadError",
            r"\bWorkerProc (?:failed to start|hit an exception|initialization failed)",
            r"\bEngine (?:core|process|loop) (?:initialization failed|failed to start)",
            r"(?:ActorDied|ActorUnavailable|RayActor|RayTask|WorkerCrashed|OwnerDied)Error",
            r"The actor (?:died|is dead)|Worker exit type|worker died unexpectedly",
            r"Broken ?pipe|Connection (?:reset|closed) by peer|Connection closed by remote",
            r"CancelledError|KeyboardInterrupt|SystemExit|GracefulExit|ConnectionResetError",
            r"Parent process exited|resource_tracker|Application startup failed|EOFError",
            r"^(?:The above exception was|During handling of the above)",
        )
    )
)
_NOISE = re.compile(
    "|".join(
        (
            r"^Exception ignored in",
            r"\w*Warning: ",
            r"failed to automatically increase",
            r"destroy_process_group\(\) was not called",
            # What an engine was doing when it died, thousands of characters of it.
            r"^Dumping (?:input data|scheduler (?:output|stats)) for |^Dumping scheduler stats: ",
            r"nanobind: ",
            r"^\s*-? ?leaked ",
        )
    )
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, without what its logger put before it."""

    raw: str
    text: str
    writer: str | None
    address: str | None
    level: str | None
    moment: Moment | None

    @property
    def is_noise(self) -> bool:
        """Harmless lines that look like a failure."""
        return self.level in ("INFO", "DEBUG") or bool(_NOISE.search(self.text))

    @property
    def is_follow_up(self) -> bool:
        """Lines that only say that something else has failed."""
        return bool(_FOLLOW_UP.search(self.text))

    @property
    def is_failure(self) -> bool:
        """Lines that say what failed: an exception, a death, an error that is no traceback."""
        if self.is_noise or _FRAME.match(self.text):
            return False
        if _EXCEPTION.match(self.text) or _DEATH.search(self.text):
            return True
        return self.level in ("ERROR", "CRITICAL", "FATAL")


def read(raw: str) -> Line:
    """Take a line apart."""
    text = _ANSI.sub("", raw).rstrip()
    writer = address = level = None
    moment: Moment | None = None
    # Ray puts its own prefix before the one of vLLM's process.
    while prefix := _PREFIX.match(text):
        writer = prefix["name"]
        address = prefix["ip"] or address
        text = text[prefix.end() :]
    head = text[:48]
    for pattern in _TIMES:
        if found := pattern.search(head):
            moment = _moment(found)
            before = text[: found.start()]
            if named := _LEVEL.match(before):
                level, text = named["level"], text[found.end() :].removeprefix(" ")
            elif not before.strip("[ "):
                text = text[found.end() :].lstrip(" \t")
                if named := _LEVEL.match(text):
                    level, text = named["level"], text[named.end() :]
            break
    text = _LOCATION.sub("", text)
    return Line(raw.rstrip(), _RAY_LOCATION.sub("", text), writer, address, level, moment)


def _moment(found: re.Match[str]) -> Moment:
    month, day, hour, minute, second = (int(found[name]) for name in ("mo", "d", "h", "mi", "s"))
    return month, day, hour, minute, second, int(found.groupdict().get("ms") or 0)
