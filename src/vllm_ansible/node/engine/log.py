"""Read what a vLLM server says while it starts: the phase it is in, and how far."""

from __future__ import annotations

import re
import time
from typing import NamedTuple, Optional


class Phase(NamedTuple):
    """One step of a start; done of total where the engine counts, else 0 of 0."""

    name: str
    done: int
    total: int


KERNELS, GRAPHS = "compiling kernels", "compiling graphs"

# In the order a start goes through them; the last line of a log that matches any of these tells.
# Read from vLLM 0.32.0, FlashInfer 0.7.0.post1 (0.6.6 compiles without a line) and tilelang's
# jit/kernel.py; Triton compiles without a line. tqdm bars end with a carriage return, not with a
# newline.
_PHASES = [
    (re.compile(r"vLLM API server version|Initializing a V\d+ LLM|non-default args"), "starting"),
    (re.compile(r"Waiting for creating a placement group"), "waiting for Ray to place the ranks"),
    (re.compile(r"world_size=\d+ rank=\d+|Connecting to existing Ray"), "connecting ranks"),
    (re.compile(r"Starting to load model|Loading model from"), "loading"),
    (re.compile(r"[Cc]heckpoint shards?:.*?(\d+)/(\d+)"), "loading shards"),
    (
        re.compile(r"Loading weights took|Model loading took|torch\.compile took .* in total"),
        "profiling",
    ),
    (
        re.compile(
            r"[Cc]ompil.* graph|Starting torch\.compile|torch\.compile takes|Warming up model"
        ),
        GRAPHS,
    ),
    (re.compile(r"KV cache size"), "warming up"),
    (
        re.compile(
            r"Building JIT module \S+|TileLang begins to compile kernel"
            r"|Warming up CuTeDSL compile_units"
        ),
        KERNELS,
    ),
    (
        re.compile(
            r"(?:DeepGEMM warmup|JIT kernel warmup \(\d+ compile keys\)|Compiling CuTeDSL kernels):"
            r".*?(\d+)/(\d+)"
        ),
        KERNELS,
    ),
    (re.compile(r"JIT kernel warmup finished"), "warming up"),
    (re.compile(r"Capturing (?:CUDA|cuda) ?graphs?.*?(\d+)/(\d+)"), "capturing graphs"),
    (re.compile(r"init engine \(profile"), "starting the server"),
    (re.compile(r"Application startup complete|Starting vLLM (?:API )?server"), "listening"),
]

# How vLLM dates a line, and how FlashInfer and tilelang do.
_STAMP = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d) |^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
)

# Said again and again while nothing moves: v1/../shm_broadcast.py and ray_utils.py of vLLM, and
# Ray's autoscaler. They are no sign of progress.
_IDLE = re.compile(
    r"No available shared memory broadcast block|Waiting for creating a placement group"
    r"|No available node types can fulfill|Engine \d+: Avg prompt throughput: 0\.0"
)

# What ranks print of their memory, from vLLM 0.6 to 0.32.
_WEIGHTS = re.compile(r"(?:Model loading took|[Ll]oading model weights took) ([\d.]+) ?Gi?B")
# default_loader.py of vLLM 0.32; each rank that logs has its own.
_LOADED = re.compile(r"Loading weights took ([\d.]+) seconds")
_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")

# What chooses how attention is computed prints its choice, platforms/*.py of vLLM 0.32. On CPU the
# usual one is chosen without a word, and another that was asked for is passed over with a line.
_ATTENTION = re.compile(
    r"\[(?:cuda|cpu|rocm|xpu)\.py:\d+\] (Using|Cannot use) "
    r"(?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]*) (?:attention )?backend\b"
)


def figures(text: str) -> dict[str, float]:
    """Return what a log prints: weights of the fullest rank in GiB, tokens of the cache, and the
    seconds that the slowest rank loaded.

    Only what was printed is there; of several caches the smallest counts.
    """
    found = {}
    weights = [float(size) for size in _WEIGHTS.findall(text)]
    tokens = [int(count.replace(",", "")) for count in _TOKENS.findall(text)]
    loaded = [float(seconds) for seconds in _LOADED.findall(text)]
    if loaded:
        found["loading_seconds"] = max(loaded)
    if weights:
        found["weights_gib"] = max(weights)
    if tokens:
        found["kv_tokens"] = float(min(tokens))
    return found


def attention(text: str) -> dict[str, list[str]]:
    """Return the attention backends that a log names: `used`, and `refused` though asked for."""
    found: dict[str, list[str]] = {"used": [], "refused": []}
    for word, name in _ATTENTION.findall(text):
        names = found["used" if word == "Using" else "refused"]
        if name not in names:
            names.append(name)
    return found


def lines(text: str) -> list[str]:
    """Split a log into lines, each state of a progress bar counting as one."""
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def news(text: str) -> int:
    """Return how many lines of a text tell of more than that time passes."""
    return sum(1 for line in lines(text) if not _IDLE.search(line))


def phase_of(line: str) -> Phase | None:
    """Return the phase one line announces, or None for a line that announces none."""
    for pattern, name in reversed(_PHASES):
        match = pattern.search(line)
        if match:
            counted = match.groups()
            done, total = (int(counted[0]), int(counted[1])) if counted else (0, 0)
            return Phase(name, done, total)
    return None


def last_phase(text: str) -> Phase | None:
    """Return the phase that the newest announcing line of a text stands for."""
    for line in reversed(lines(text)):
        phase = phase_of(line)
        if phase:
            return phase
    return None


def spans(text: str, phase: str, began: float, until: float) -> dict[str, float]:
    """Return the seconds of each phase that a text tells of, from one moment to another.

    phase: the one at the begin. A line without a date is as old as the one before it.
    """
    found: dict[str, float] = {}
    at = moment = began
    for line in lines(text):
        dated = _moment(line, until)
        if dated is not None:
            moment = min(max(moment, dated), until)
        told = phase_of(line)
        if told and told.name != phase:
            found[phase] = found.get(phase, 0.0) + moment - at
            phase, at = told.name, moment
    found[phase] = found.get(phase, 0.0) + until - at
    return {name: round(seconds, 3) for name, seconds in found.items() if seconds > 0}


def _moment(line: str, until: float) -> Optional[float]:
    """Return when a line was written; vLLM's dates lack the year, so it is the last such day."""
    found = _STAMP.search(line)
    if found is None:
        return None
    year = time.localtime(until).tm_year
    try:
        if found[2]:
            return time.mktime(time.strptime(found[2], "%Y-%m-%d %H:%M:%S"))
        read = time.mktime(time.strptime(f"{year}-{found[1]}", "%Y-%m-%d %H:%M:%S"))
        if read > until + 86400:
            return time.mktime(time.strptime(f"{year - 1}-{found[1]}", "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None
    return read


def tail(text: str, count: int = 40) -> list[str]:
    """Return the last lines, progress bars folded to their last state."""
    kept: list[str] = []
    for line in lines(text):
        if kept and "it/s]" in line and "it/s]" in kept[-1]:
            kept[-1] = line
        else:
            kept.append(line)
    return kept[-count:]


# Which rank has written a line, as Ray or vLLM put it before each; Ray may colour that.
_RANK = re.compile(
    r"^(?:\(EngineCore\S* pid=\d+\) )?\((?:(\S*[Ww]orker\S*) )?pid=(\d+)(?:, ip=([^)\s]+))?\)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def ranks(text: str) -> dict[str, dict[str, str]]:
    """Return, by the address of each host but this one (""), its ranks, each with its last phase.

    Only what a rank itself has written counts; vLLM writes most lines by one rank of each host.
    """
    found: dict[str, dict[str, str]] = {}
    for line in lines(text):
        who = _RANK.match(_COLOUR.sub("", line))
        if who is None:
            continue
        name = f"{who[1] or 'process'} {who[2]}"
        phase = phase_of(line)
        known = found.setdefault(who[3] or "", {})
        known[name] = phase.name if phase else known.get(name, "")
    return found


def place(phase: str) -> int:
    """Return how far in a start a phase is, -1 for none."""
    return next((at for at, (_, name) in enumerate(_PHASES) if name == phase), -1)
