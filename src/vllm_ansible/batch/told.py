"""What a person reads of a batch: a line while it runs, a few at its end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from vllm_ansible import terminal as console

from .sender import Tally

TERMINAL_SECONDS, PLAIN_SECONDS = 0.5, 10.0
# The rate of the last minute or so tells when it ends better than that of the whole run.
KEPT_POINTS = 120


class Told:
    """The progress line: drawn in place on a terminal, a line now and then elsewhere."""

    def __init__(
        self, out: TextIO, total: int, before: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._total, self._before, self._clock = out, total, before, clock
        self._terminal = out.isatty()
        self.interval = TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS
        self._points: list[tuple[float, int, int]] = [(clock(), 0, 0)]

    def show(self, tally: Tally) -> None:
        """Draw the line."""
        line = self.line(tally)
        if self._terminal:
            self._out.write(console.CLEAR + line[: console.width() - 1])
        else:
            self._out.write(line + "\n")
        self._out.flush()

    def line(self, tally: Tally) -> str:
        """Return how far it is, how fast it goes, and when it may end."""
        ended = tally.answered + tally.failed
        self._points = [
            *self._points[-KEPT_POINTS:],
            (self._clock(), ended, tally.completion_tokens),
        ]
        (then, before, tokens), (now, *_) = self._points[0], self._points[-1]
        seconds = max(now - then, 1e-9)
        rate = (ended - before) / seconds
        left = self._total - self._before - ended
        parts = [
            f"{self._before + tally.answered:,} of {self._total:,} answered",
            f"{tally.in_flight} in flight",
            f"{(tally.completion_tokens - tokens) / seconds:.1f} tokens/s",
            f"{tally.failed:,} failed" if tally.failed else "",
            f"{tally.again:,} sent again" if tally.again else "",
            f"about {console.duration(left / rate)} left" if rate and left else "",
            f"waiting: {' '.join(tally.waiting.split())}" if tally.waiting else "",
        ]
        return " send       " + ", ".join(part for part in parts if part)

    def close(self) -> None:
        """Leave no half-drawn line behind."""
        if self._terminal:
            self._out.write(console.CLEAR)
            self._out.flush()


def document(
    tally: Tally, seconds: float, total: int, before: int, output: str, stopped: str
) -> dict[str, Any]:
    """Return what a script reads of a run: counts, tokens, and what was measured in this run."""
    return {
        "ok": before + tally.answered == total,
        "stopped": stopped,
        "prompts": total,
        "answered_before": before,
        "answered": tally.answered,
        "failed": tally.failed,
        "sent_again": tally.again,
        "seconds": round(seconds, 3),
        "prompt_tokens": tally.prompt_tokens,
        "completion_tokens": tally.completion_tokens,
        "without_token_counts": tally.uncounted,
        "completion_tokens_per_second": _rate(tally.completion_tokens, seconds),
        "prompt_tokens_per_second": _rate(tally.prompt_tokens, seconds),
        "ttft_ms": spread(tally.ttft),
        "itl_ms": spread(tally.itl),
        "total_ms": spread(tally.total),
        "output": output,
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return median and 99th percentile, None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    # The nearest rank: a value that was measured, also where they are few.
    last = ordered[max(0, -(-len(ordered) * 99 // 100) - 1)]
    return {"median": round(statistics.median(ordered), 3), "p99": round(last, 3)}


def closing(found: dict[str, Any]) -> list[str]:
    """Return the last lines of a run."""
    answered = found["answered_before"] + found["answered"]
    parts = [f"{answered:,} of {found['prompts']:,} answered"]
    if found["answered_before"]:
        parts.append(f"{found['answered_before']:,} of them before")
    if found["failed"]:
        parts.append(f"{found['failed']:,} failed")
    if found["sent_again"]:
        parts.append(f"{found['sent_again']:,} requests repeated")
    if found["without_token_counts"]:
        parts.append(f"{found['without_token_counts']:,} whose tokens the server did not count")
    lines = console.stage_line("send", ", ".join(parts), console.duration(found["seconds"]))
    if found["answered"]:
        lines += console.stage_line("measured", _figures(found))
    return [*lines, *console.stage_line("answers", found["output"])]


def _figures(found: dict[str, Any]) -> str:
    named = (("TTFT", "ttft_ms"), ("between tokens", "itl_ms"), ("whole answer", "total_ms"))
    parts = [
        f"{found['completion_tokens_per_second']:,.1f} tokens/s out, "
        f"{found['prompt_tokens_per_second']:,.1f} in"
    ]
    parts += [
        f"{words} {found[name]['median']:,.0f} ms median, {found[name]['p99']:,.0f} ms p99"
        for words, name in named
        if found[name]
    ]
    return "; ".join(parts)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0
