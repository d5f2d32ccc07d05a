"""Read a line of a log: who wrote it, when, and whether it tells of a failure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..redact import redact_text

# month, day, hour, minute, second, millisecond: vLLM writes no year.
Moment = tuple[int, int, int, int, int, int]

# Colours and moves of the cursor, titles and links, another set of characters.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][\dA-Z]|[=>78])")
_PREFIX = re.compile(
    r"^\((?P<name>[A-Za-z_][\w.:\-= ]*?) pid=\d+(?:, ip=(?P<ip>[\d.a-fA-F:]+))?\)\s?"
)
# The four letters with seconds behind them are those of docker, podman and other programs in Go.
_LEVEL = re.compile(
    r"^(?:(?P<go>DEBU|INFO|WARN|ERRO|FATA)\[\d{4}\] ?"
    r"|(?P<level>TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b[ :]*)"
)
# In brackets: NATS in three letters, HAProxy with a date of its own and its process behind it,
# nginx with its process and connection.
_BRACKETED = re.compile(
    r"^\[(?P<level>[DIWEF]|TRC|DBG|INF|WRN|ERR|FTL|(?i:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?"
    r"|ERROR|CRIT|ALERT|EMERG|FATAL)) ?\](?: +(?:\d+/\d+ )?\(\d+\) :| \d+#\d+:(?: \*\d+)?)? *"
)
_LEVELS = {
    "WARN": "WARNING",
    "WRN": "WARNING",
    "TRACE": "DEBUG",
    "TRC": "DEBUG",
    "DBG": "DEBUG",
    "INF": "INFO",
    "NOTICE": "INFO",
    "ERR": "ERROR",
    "ERRO": "ERROR",
    "DEBU": "DEBUG",
    "FATA": "FATAL",
    "CRIT": "CRITICAL",
    "ALERT": "ERROR",
    "EMERG": "FATAL",
    "FTL": "FATAL",
    "PANIC": "FATAL",
    "DPANIC": "FATAL",
}
# Severity letters of glog, Ray's C++ parts and torch.
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "CRITICAL"}
# What runs a program puts before its lines: containerd, MPI, torchrun and vLLM's ranks, systemd's
# journal, the kernel, TensorRT-LLM's name and time before a level in brackets; docker with its
# times, docker compose, kubectl, SkyPilot, TorchServe, srun with the number of the task; and what
# pyxis quotes of enroot's log.
_RUNNERS = re.compile(
    "|".join(
        (
            r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ",
            r"^\[\d+,\d+\]<(?:stdout|stderr)>:\s?",
            r"^\[(?:rank|default|default_rank)\d{1,5}\]: ?",
            r"^\[\d{1,5}\]: ",
            r"^\[\d\d:\d\d:\d\d\.\d{3}\] ",
            # A step of the build of an image.
            r"^(?:#\d+ )?\d+\.\d{2,3} "
            r"(?=Traceback |  File |[\w.]+(?:Error|Exception): |(?i:error): )",
            r"^\((?:raylet|gcs_server|autoscaler)\) (?=\[)",
            r"^(?:\[\d{1,5}\] )+(?![\w./-]+:\d+ NCCL )",
            r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w@./-]+(?:\[\d+\])?: ",
            r"^\[ *\d+\.\d{6}\] (?!\[)",
            r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ",
            r"^\d{4}-\d\d-\d\dT[\d:]+\.\d{7,9}Z ",
            r"^[a-z\d][\w.-]* +\| ",
            # What pip and uv quote of the build of a package.
            r"^ {6}(?=Traceback \(most recent call last\):$|  File \"|[\w.]+(?:Error|Exception): )",
            # What a group of exceptions holds.
            r"^ +(?:\| +)*\| (?=(?:[\w.]*(?:Error|Exception): |Traceback | +File \"))",
            r"^(?:\[[\d/-]+[\d:]+\] )?\[(?:TensorRT-LLM|TRT(?:-LLM)?)\] ?(?=\[[A-Za-z]+\])",
            r"^\[pod/[\w.-]+/[\w.-]+\] ",
            r"^\([\w.-]+, (?:rank=\d+, )?pid=\d+(?:, ip=[\d.]+)?\) ",
            r"^\d{4}-\d\d-\d\dT[\d:,]+ \[[A-Z]+ *\] W-\S+-std(?:out|err) MODEL_LOG - ",
            r"^ {0,3}\d{1,4}: (?=[(\[]|(?:INFO|WARNING|ERROR) |Traceback|(?:srun|slurmstepd): "
            r"|[\w.-]+:\d+:\d+ \[\d+\] |[\w.]+(?:Error|Exception)\b| +File )",
            r"^(?:[A-Z][a-z]{2} [ \d]\d [\d:.]+ \d+ )?slurmstepd(?:\[\S+\]| +0x[\da-f]+)?: error: "
            r"(?:pyxis|enroot): {2,}",
        )
    )
)
# torchrun's and MPI's number of the rank that wrote a line.
_RANK = re.compile(r"^\[(?:rank|\d+,)(\d+)\]")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_JOURNAL = re.compile(
    rf"^(?:\[[A-Z][a-z]{{2}} )?(?P<month>{'|'.join(_MONTHS[n : n + 3] for n in range(0, 36, 3))})"
    r" +(?P<d>\d+) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
)
_DOCKER = re.compile(r'^\{"log":"(?P<log>(?:[^"\\]|\\.)*)"')
# What writes one JSON document a line (etcd, Dynamo) and what writes pairs (containerd, docker).
_DOCUMENT = re.compile(r'^\{.*"(?:level|levelname|severity)" ?: ?"\w+".*\}$')
_PAIRS = re.compile(
    r'^(?:time|ts)="?(?P<time>[^" ]+)"? level="?(?P<level>\w+)"? (?:\w+=\S+ )*?'
    r'msg=(?:"(?P<msg>(?:[^"\\]|\\.)*)"|(?P<word>\S+))(?P<rest>.*)$'
)
# In a document: where its words are, and what else says why.
_DOCUMENT_LEVELS, _DOCUMENT_TIMES = (
    ("level", "levelname", "severity"),
    ("time", "ts", "timestamp", "asctime"),
)
_WORDS, _REASONS = ("message", "msg"), ("error", "err", "reason")
# gpu-1:311:1288 [0] bootstrap.cc:112 NCCL WARN Bootstrap : no socket interface found
_NCCL = re.compile(
    r"^(?:\[[^\]]*\] )?(?P<host>[\w.-]+):\d+:\d+ \[\d+\] "
    r"(?:(?P<source>.*?) )??NCCL (?P<level>INFO|WARN|TRACE|ERROR|VERSION)\b ?"
)
# [1614790001.220112] [node:4001 :0]   ib_device.c:478  UCX  WARN  words
_UCX = re.compile(r"^\[\d+\.\d+\] \[[^\]]*\] +\S+:\d+ +(?P<place>UCX +(?P<level>[A-Z]+)) +")
# [2026-11-20 10:31:02,123 E 12 12] (raylet) worker_pool.cc:1239: words
_RAY_SEVERITY = re.compile(r"^ (?P<letter>[DIWEFC]) \d+ \d+\] (?:\([\w-]+\) )?(?:[\w./-]+:\d+: ?)?")
# 2026-11-20 10:31:02.123456 W | rafthttp: words, as etcd before 3.4 writes
_CAPNSLOG = re.compile(r"^ (?P<letter>[DINWEC]) \| (?=[\w/]+: )")
# What kubectl shows of events, with or without their age.
_EVENT = re.compile(
    r"^\s*(?:\S+ +)?(?P<level>Warning|Normal) +(?P<reason>[A-Z]\w+) +"
    r"(?=\S)(?:\(?x?\d\S*(?: over \S+)? +)?"
)
_FAILED = re.compile(
    r"^(?:Failed|Evicted|Unexpected|OOMKilling|SystemOOM|Inspect|ErrImage|NodeNotReady)"
)
# Of Python's logging: ` - name - LEVEL - `, ` 1 name LEVEL: ` with the process before it, and
# ` | LEVEL | name | ` or ` | LEVEL | name - ` of loguru.
_NAMED_LEVEL = re.compile(
    r"^(?: - [\w.]+ - (?P<level>[A-Z]+) - | \d+ [\w.]+ (?P<name>[A-Z]{4,8}):? +"
    r"| \| (?P<bar>[A-Z]{4,8}) +\| (?:[\w.:-]+ [|-] )?)"
)
# ` - LEVEL - ` behind a time, `name - LEVEL - ` without one, and `file.py[LEVEL]: ` of cloud-init.
_DASHED = re.compile(
    r"^(?: - |[\w.]+ - |(?: - )?\w+\.py\[)"
    r"(?P<level>TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?: - |\]: )"
)
# What a launcher passes on of its engine, behind its own name and level.
_PASSED_ON = re.compile(
    r"(?:^|(?<=[ \]]))(?=\([A-Za-z_][\w.:\-= ]*? pid=\d+\) "
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]{2}\d+)*\] )"
)
_PASSED_ON_WITHIN = 120
# SGLang's ranks, in the brackets of the time: [2026-11-20 10:31:02 DP1 TP0] words
_RANKS = re.compile(r"^ (?P<ranks>(?:[A-Z]{2}\d+ ?)+)\] ?")
_TIMES = (
    # Ray and most others: 2026-11-20 10:31:02,123 or with a T
    re.compile(
        r"\b\d{4}[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)"
        r"(?:[.,](?P<ms>\d{3})\d*)?(?:Z|[+-]\d\d:?\d\d\b)?"
    ),
    # vLLM: 11-20 10:31:02; after the full date, of which it is a part
    re.compile(r"\b(?P<mo>\d\d)-(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\b"),
    # glog, as torch writes: [W1120 10:40:31.757867347; with the year since 0.6
    re.compile(
        r"^\[?(?P<letter>[IWEF])(?:20\d\d)?(?P<mo>\d\d?)(?P<d>\d\d) "
        r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<ms>\d{3})\d*"
    ),
)
_GLOG_LOCATION = re.compile(r"^ +(?:\d+ +)*[\w./-]+:\d+\] ")
# Releases of vLLM before 0.8 leave the first bracket out.
_LOCATION = re.compile(r"^\[?[\w./-]+:\d+\]\s?")
_RAY_LOCATION = re.compile(r"^[\w./-]+:\d+ -- ")

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*_*[A-Z]\w*(?:Error|Exception|Timeout|Exit|Interrupt|Failure)"
    r"(?:_\w+)?(?::|$)|^Exception: |^(?:[A-Za-z_]\w*\.)+Exception: "
)
_DEATH = re.compile(
    r"Segmentation fault|core dumped|\bOut of memory\b|\bOOM-?kill|CUDA out of memory"
    r"|^Killed$|terminate called after throwing|Fatal Python error|^Aborted\b|^error: "
    r"|\berror: (?:unrecognized|argument|the following) "
    r"|^(?:srun|sbatch|salloc|slurmstepd|ray|bash|sh): (?:error|fatal): |^Error: "
    r"|^nvidia-container-cli(?:\.real)?: \w+ error: "
    r"|\bError response from daemon: |permission denied while trying|^Cannot connect to the "
    r"|^/\S+: \d+: (?:exec: )?\S+: (?:not found|Permission denied)$"
    r"|^panic: |^(?:\S*/)?(?:ba|da|z)?sh: (?:line )?\d+: "
    r"|^Could not (?:unload|load|open|start|create) |^failed to start daemon: "
    r"|^(?:\S*/)?python[\d.]*: (?:Error|No module|can't)"
    r"|\bfatal *(?:error)?:|\bTest (?:CUDA|NCCL) failure\b|^Failed: |\bpanicked at\b|Bus error"
)
# Parts of a traceback: its head, its frames, their source lines and carets.
_FRAME = re.compile(r"^(?:Traceback \(most recent call last\):|\s+\S.*|\s*\^+|)$")
_FRAME_HEAD = re.compile(r'^\s+File "[^"]+", line \d+')
# An exception of pydantic or transformers whose words stand in the lines after it.
_HEAD = re.compile(
    r"\b\d+ validation errors? for \S+$"
    r"|because of the following error(?: \(look up to see its traceback\))?:$"
    r"|\bNCCL error in: .*, NCCL version [\d.]+$|\bpanicked at \S+:\d+:\d+:$"
    r"|throwing an instance of '.*'$|No solution found when resolving dependencies.*:$"
    r"|RpcError of RPC that terminated with:$"
)
_BARE = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception): *$")
_REASON_END = re.compile(r"^\s*(?:For further information visit |hint: )")
# What pydantic got, which is the whole of the arguments.
_REASON_INPUT = re.compile(r"\s*\[type=\w+, input_value=.*$")
_FOLLOW_UP = re.compile(
    "|".join(
        (
            r"See (?:root cause|stack trace|the stack trace|logs?) (?:above|for)",
            r"\bEngineCore (?:failed to start|encountered a fatal error)|EngineDeadError",
            r"\bWorkerProc (?:failed to start|hit an exception|initialization failed)",
            r"\bEngineCore (?:failed|hit an exception)|\bWorker (?:proc )?\S* ?died unexpectedly",
            r"\boutput_handler failed|\bEngine core proc \S+ died unexpectedly",
            r"\bWorker failed with error|\bExceptions? in worker\b|\bError executing method\b",
            r"run with NCCL_DEBUG=|\bTest (?:CUDA|NCCL) failure\b|remote process exited",
            r"Watchdog caught collective operation timeout|ChildFailedError",
            r"exited with (?:non-?zero|exit) (?:status|code)|returned non-zero exit status",
            r"^(?:srun: )?Terminating |^srun: error: .*: task .*: (?:Exited|Terminated|Killed)",
            r"\bEngine (?:core|process|loop) (?:initialization failed|failed to start)",
            r"(?:ActorDied|ActorUnavailable|RayActor|RayTask|WorkerCrashed|OwnerDied)Error",
            r"The actor (?:died|is dead)|Worker exit type|worker died unexpectedly",
            r"Broken ?pipe|Connection (?:reset|closed) by peer|Connection closed by remote",
            r"CancelledError|KeyboardInterrupt|SystemExit|GracefulExit|ConnectionResetError",
            r"Parent process exited|resource_tracker|Application startup failed|EOFError",
            r"^(?:The above exception was|During handling of the above)",
            r"\bException in (?:replica constructor|ASGI application)",
            r"Engine background task failed",
            # What runs beside nats-server and waits for it.
            r"nats\.pid: no such file or directory|Could not find server id: ",
            r"Failed to start model server|Received sigquit from a child process",
            r"pyxis: (?:container start failed|printing enroot log|couldn't start)",
            r"pyxis: child \d+ failed|\bspank: required plugin|exited with return code",
            r"Failed to invoke spank plugin stack",
            r"slurmd initialization failed|failed to load configs",
            r"^FAILED: |^ninja: build stopped|\braised:$",
            r"has lost communication with a remote daemon|unable to reliably start one or more",
            # The name of an error without a word, and what only announces what another wrote.
            r"^Error: [A-Z]\w+$|\b(?:output|stderr|stdout|log)(?: \w+)?:$",
            r"^error waiting for container:",
            # Docker's line breaks off where the hook's own begins.
            r"\bstderr: Auto-detected mode as '\w+'$",
        )
    )
)
_WRAPPER = re.compile(r"\braised:$")
# What Ray's dashboard could not count; the traceback behind it is of that alone.
_HARMLESS_HEAD = "^Error emitting api metrics"
_NOISE = re.compile(
    "|".join(
        (
            r"^Exception ignored in",
            # What Slurm's daemons and ssh look for at their levels of debugging.
            r"^(?:\w+: )?debug[1-5]?: ",
            r"Warning: (?!CUDA initialization: )",
            r"failed to automatically increase",
            r"destroy_process_group\(\) was not called",
            # What an engine was doing when it died, thousands of characters of it.
            r"^Dumping (?:input data|scheduler (?:output|stats)) for |^Dumping scheduler stats: ",
            r"nanobind: ",
            # pip installs all the same; what misses another version then says so itself.
            r"pip's dependency resolver does not currently take into account",
            r"Unable to register cu(?:DNN|BLAS|FFT) factory",
            r"errno: 97 - Address family not supported",
            # NCCL goes on by sockets.
            r"^Failed to open libibverbs\.so",
            # Ray's exporter of metrics, without which everything works.
            r"metrics exporter agent|Failed to establish connection to the (?:event|metrics)",
            _HARMLESS_HEAD,
            r"^\s*-? ?leaked ",
            # An actor that is stopped in order, as Ray's C++ parts report it.
            r"^\*\*\* SIGTERM received at time=|^PC: @ ",
        )
    )
)
# A cloud's refusal, as its client words it, also where a launcher tries again at its level INFO.
_REFUSED = re.compile(r"\bAn error occurred \([\w.]+\) when calling the \w+ operation")
# What a program says of what it goes on without; an exception may end so as well.
_PASSED_OVER = re.compile(r", (?:skipping|ignoring) \w+\.?$|\bignored$")
_FAILING = ("ERROR", "CRITICAL", "FATAL")
# Of longer words of a line only the ends are read, for patterns take long on them.
_LONGEST_HEAD, _LONGEST_TAIL = 6 * 1024, 2 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, without what its logger put before it."""

    raw: str
    text: str
    writer: str | None
    address: str | None
    level: str | None
    moment: Moment | None
    # NCCL and UCX say at their level WARN why they fail.
    library: bool = False
    # Where a library's line was written, file and line of its source: `transport/nvls.cc:254`.
    source: str = ""
    # Daemons (raylet, gcs) report at their level E what they go on after.
    daemon: bool = False

    @property
    def is_noise(self) -> bool:
        """Harmless lines that look like a failure."""
        if _NOISE.search(self.text):
            return True
        if self.level in ("INFO", "DEBUG"):
            return not _REFUSED.search(self.text)
        if self.level in _FAILING or _EXCEPTION.match(self.text):
            return False
        return bool(_PASSED_OVER.search(self.text))

    @property
    def is_head_of_harmless(self) -> bool:
        """An error that does no harm, whose traceback stands in the lines after it."""
        return bool(re.match(_HARMLESS_HEAD, self.text))

    @property
    def is_frame(self) -> bool:
        """Lines of a traceback that name a file and a line of it."""
        return bool(_FRAME_HEAD.match(self.text))

    @property
    def is_head_of_traceback(self) -> bool:
        """The line with which a traceback begins."""
        return self.text.endswith("Traceback (most recent call last):")

    @property
    def is_indented(self) -> bool:
        """Lines that belong to the one before them."""
        return self.text.startswith((" ", "\t"))

    @property
    def is_follow_up(self) -> bool:
        """Lines that only say that something else has failed."""
        return bool(_FOLLOW_UP.search(self.text))

    @property
    def is_wrapper(self) -> bool:
        """Lines that only announce the exception in the line after them."""
        return bool(_WRAPPER.search(self.text))

    @property
    def is_head(self) -> bool:
        """Lines of an exception whose reason stands in the lines after them."""
        return bool(_HEAD.search(self.text))

    @property
    def is_bare(self) -> bool:
        """Lines of an exception whose words stand in the indented lines after them."""
        return bool(_BARE.match(self.text))

    @property
    def is_end(self) -> bool:
        """Lines after which their program does not go on: an exception, a death, a fatal error."""
        if self.level == "WARNING" and not self.library:
            return False
        if _EXCEPTION.match(self.text) or _DEATH.search(self.text):
            return True
        return self.level in ("CRITICAL", "FATAL")

    @property
    def is_failure(self) -> bool:
        """Lines that say what failed: an exception, a death, an error that is no traceback."""
        if self.is_noise or _FRAME.match(self.text):
            return False
        return self.is_end or self.level == "ERROR"


def read(raw: str) -> Line:
    """Take a line apart; of very long words the ends are kept."""
    line = _read(raw)
    text = clipped(line.text)
    return line if text is line.text else replace(line, text=text)


def clipped(text: str) -> str:
    """Return a text, or its ends; secrets are hidden first, for half of one is not known again."""
    if len(text) <= _LONGEST_HEAD + _LONGEST_TAIL:
        return text
    text = redact_text(text)
    if len(text) <= _LONGEST_HEAD + _LONGEST_TAIL:
        return text
    return f"{text[:_LONGEST_HEAD]} ... {text[-_LONGEST_TAIL:]}"


def _read(raw: str) -> Line:
    text = _ANSI.sub("", raw).rstrip()
    if boxed := _DOCKER.match(text):
        text = _ANSI.sub("", _unescaped(boxed["log"])).rstrip()
    writer = address = level = None
    moment: Moment | None = None
    while True:
        # Ray puts its own prefix before the one of vLLM's process.
        if prefix := _PREFIX.match(text):
            writer = prefix["name"]
            address = prefix["ip"] or address
        else:
            prefix = _RUNNERS.match(text)
            if not prefix:
                break
            moment = _written(prefix[0]) or moment
            if rank := _RANK.match(prefix[0]):
                writer = writer or f"rank {rank[1]}"
        text = text[prefix.end() :]
    if library := _NCCL.match(text) or _UCX.match(text):
        moment = _written(text[:24]) or moment
        source = library.groupdict().get("source") or library.groupdict().get("place") or ""
        text, level = text[library.end() :], _level(library)
        return Line(raw.rstrip(), text, writer, address, level, moment, True, source)
    if told := _of_document(text) or _of_pairs(text):
        level, text, at = told
        return Line(raw.rstrip(), text, writer, address, level, _written(at) or moment)
    if event := _EVENT.match(text):
        failed = event["level"] == "Warning" and _FAILED.match(event["reason"])
        return Line(raw.rstrip(), text, writer, address, "ERROR" if failed else None, moment)
    head = text[:48]
    daemon = False
    for pattern in _TIMES:
        if found := pattern.search(head):
            moment = _moment(found)
            daemon = bool(_RAY_SEVERITY.match(text[found.end() :]))
            level, text = _after_time(text, found)
            break
    else:
        if named := _LEVEL.match(text) or _BRACKETED.match(text) or _DASHED.match(text):
            level, text = _level(named), text[named.end() :]
    text = _LOCATION.sub("", text)
    if level and (inner := _PASSED_ON.search(text, 0, _PASSED_ON_WITHIN)):
        passed = read(text[inner.start() :])
        return replace(passed, raw=raw.rstrip(), moment=passed.moment or moment)
    text = _RAY_LOCATION.sub("", text)
    return Line(raw.rstrip(), text, writer, address, level, moment, daemon=daemon)


def reason(after: Sequence[Line], writer: str | None) -> list[str]:
    """Return why an exception was raised, of the lines after its head by the same writer."""
    found: list[str] = []
    for line in after:
        if line.writer != writer:
            continue
        if line.level or _REASON_END.match(line.text):
            break
        if text := _REASON_INPUT.sub("", line.text).strip():
            found.append(text)
    return found


def _after_time(text: str, found: re.Match[str]) -> tuple[str | None, str]:
    """Return the level and the words of a line whose time was found."""
    before, after = text[: found.start()], text[found.end() :]
    if named := _LEVEL.match(before):
        return _level(named), after.removeprefix(" ")
    if letter := found.groupdict().get("letter"):
        return _LETTERS[letter], _GLOG_LOCATION.sub("", after)
    if before.strip("[ "):
        return None, text
    if severity := _RAY_SEVERITY.match(after):
        return _LETTERS[severity["letter"]], after[severity.end() :]
    if severity := _CAPNSLOG.match(after):
        return _LETTERS[severity["letter"].replace("N", "I")], after[severity.end() :]
    if named := _DASHED.match(after):
        return _level(named), after[named.end() :]
    if named := _NAMED_LEVEL.match(after):
        level = named["level"] or named["name"] or named["bar"]
        return _level_named(level), after[named.end() :]
    if ranks := _RANKS.match(after):
        after = after[ranks.end() :]
    text = after.lstrip(" \t]")
    if named := _LEVEL.match(text) or _BRACKETED.match(text):
        return _level(named), text[named.end() :]
    return None, text


def _level(found: re.Match[str]) -> str:
    return _level_named(found["level"] or found["go"])


def _level_named(name: str) -> str:
    level = name.upper()
    return _LETTERS.get(level) or _LEVELS.get(level, level)


def _of_document(text: str) -> tuple[str, str, str] | None:
    """Return level, words and time of a line that is one JSON document."""
    if not _DOCUMENT.match(text):
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return None
    fields = told.get("fields")
    told = {**told, **fields} if isinstance(fields, dict) else told
    words = [told[name] for name in (*_WORDS, *_REASONS) if isinstance(told.get(name), str)]
    level = _level_named(str(next((told[one] for one in _DOCUMENT_LEVELS if told.get(one)), "")))
    at = next((told[one] for one in _DOCUMENT_TIMES if told.get(one)), "")
    return level, ": ".join(words), str(at)


def _of_pairs(text: str) -> tuple[str, str, str] | None:
    """Return level, words and time of a line of names and values."""
    if not (found := _PAIRS.match(text)):
        return None
    words = _unescaped(found["msg"]) if found["msg"] is not None else found["word"]
    return _level_named(found["level"]), f"{words}{found['rest']}", found["time"]


def _written(text: str) -> Moment | None:
    """Return the moment that a prefix carries."""
    if journal := _JOURNAL.match(text):
        month = _MONTHS.find(journal["month"]) // 3 + 1
        day, hour, minute, second = (int(journal[name]) for name in ("d", "h", "mi", "s"))
        return month, day, hour, minute, second, 0
    found = _TIMES[0].search(text)
    return _moment(found) if found else None


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _moment(found: re.Match[str]) -> Moment:
    month, day, hour, minute, second = (int(found[name]) for name in ("mo", "d", "h", "mi", "s"))
    return month, day, hour, minute, second, int(found.groupdict().get("ms") or 0)
