"""Read what a vLLM server says while it starts: the phase it is in, and how far."""

from __future__ import annotations

import re
from typing import NamedTuple


class Phase(NamedTuple):
    """One step of a start; done of total where the engine counts, else 0 of 0."""

    name: str
    done: int
    total: int


# In the order a start goes through them; the last line of a log that matches any of these tells.
# Read from vLLM 0.32.0; tqdm bars end with a carriage return, not with a newline.
_PHASES = [
    (re.compile(r"vLLM API server version|Initializing a V\d+ LLM|non-default args"), "starting"),
    (re.compile(r"Waiting for creating a placement group"), "waiting for Ray to place the ranks"),
    (re.compile(r"world_size=\d+ rank=\d+|Connecting to existing Ray"), "connecting ranks"),
    (re.compile(r"Starting to load model|Loading model from"), "loading"),
    (re.compile(r"[Cc]heckpoint shards?:.*?(\d+)/(\d+)"), "loading shards"),
    (re.compile(r"Loading weights took|Model loading took"), "profiling"),
    (re.compile(r"[Cc]ompil.* graph|torch\.compile takes|Warming up model"), "compiling"),
    (re.compile(r"Capturing (?:CUDA|cuda) ?graphs?.*?(\d+)/(\d+)"), "capturing graphs"),
    (re.compile(r"KV cache size|init engine \(profile"), "starting the server"),
    (re.compile(r"Application startup complete|Starting vLLM (?:API )?server"), "listening"),
]

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


def tail(text: str, count: int = 40) -> list[str]:
    """Return the last lines, progress bars folded to their last state."""
    kept: list[str] = []
    for line in lines(text):
        if kept and "it/s]" in line and "it/s]" in kept[-1]:
            kept[-1] = line
        else:
            kept.append(line)
    return kept[-count:]
