"""A ramp of concurrency to the knee: which point is next, what it gave, what of it is kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from statistics import median
from typing import Any, Optional

from .. import launcher
from ..process import process
from . import metrics, result_file
from .benchmark import Served, Settings, answered, how, judge, last_line

VERSION = 1
# A step that brings less than this over the best before it is no gain; two in a row end the climb.
GAIN = 0.1
# Prompts come from the seed. Those of the stage benchmark, whose seeds begin at 0, are others.
FIRST_SEED = 10_000
LOAD, PREFILL = "load", "prefill"
LATENCIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "itl": "itl_ms", "e2el": "e2e_ms"}
PERCENTILES = (50, 90, 99)
# Limits of a request in milliseconds, by the word that the client has for them.
LIMITS = {"ttft_ms": "ttft", "tpot_ms": "tpot", "e2e_ms": "e2el"}
COUNTERS = {
    "finished": "vllm:request_success_total",
    "preemptions": "vllm:num_preemptions_total",
    "cache_queries": "vllm:prefix_cache_queries_total",
    "cache_hits": "vllm:prefix_cache_hits_total",
}
# Where a request spends its time, by the engine's own clock.
PHASES = ("queue", "prefill", "decode")
PHASE = "vllm:request_{}_time_seconds_{}"
PARTS = ("sum", "count")
METRICS_SECONDS = 10


@dataclass(frozen=True)
class Ramp:
    """What a ramp asks: its steps, or where a climb by doubling ends, and the load of a step.

    also is a step of the climb beside the powers of two: the concurrency that was planned for.
    """

    steps: tuple[int, ...]
    most: int
    rounds: int
    requests_each: int
    least_requests: int
    input_tokens: int
    output_tokens: int
    slo: Mapping[str, float]
    also: int = 0

    def ladder(self) -> list[int]:
        """Return the steps in order."""
        if self.steps:
            return sorted(set(self.steps))
        found = {1 << power for power in range(self.most.bit_length()) if 1 << power <= self.most}
        return sorted(found | ({self.also} if 0 < self.also <= self.most else set()))

    def settings(self, point: Mapping[str, Any]) -> Settings:
        """Return the load of one point."""
        users = int(point["concurrency"])
        return Settings(
            requests=max(self.least_requests, self.requests_each * users),
            concurrency=users,
            input_tokens=self.input_tokens,
            output_tokens=1 if point["kind"] == PREFILL else self.output_tokens,
        )


def check(ramp: Ramp, name: str) -> None:
    """Refuse a ramp that has no point, or one without a request."""
    given = {
        "benchmark_ramp_users": min(ramp.steps, default=1),
        "benchmark_ramp_most_users": ramp.most,
        "benchmark_ramp_rounds": ramp.rounds,
        "benchmark_ramp_requests_each": ramp.requests_each,
        "the length of an answer": ramp.output_tokens - 1,
        "benchmark_slo_*_ms": min(ramp.slo.values(), default=0) + 1,
    }
    wrong = [one for one, value in given.items() if value < 1]
    if wrong:
        raise process.ProcessError(
            f"The ramp of {name} cannot be measured: {wrong[0]} is too small.",
            expected="1 or more; answers of 2 tokens or more, limits of 0 or more",
            found=f"{wrong[0]} below that",
            where="the variables of the role benchmark",
            fix=f"Set {wrong[0]} again.",
        )


def options(slo: Mapping[str, float]) -> list[str]:
    """Return what the client is asked for beyond a measurement of the stage benchmark."""
    goodput = [f"{LIMITS[name]}:{limit:g}" for name, limit in slo.items() if limit]
    return [
        # Each answer has the length that was asked for, or rounds would not be the same work.
        "--ignore-eos",
        "--percentile-metrics",
        ",".join(LATENCIES),
        "--metric-percentiles",
        ",".join(map(str, PERCENTILES)),
        *(["--goodput", *goodput] if goodput else []),
    ]


def next_point(points: Sequence[Mapping[str, Any]], ramp: Ramp) -> Optional[dict[str, Any]]:
    """Return the point that is to be measured next, None when all are.

    First all steps once, then all of them again in each further round, so that what drifts over
    minutes counts as noise; last, at the knee, the same prompts with answers of one token.
    """
    climb = [one for one in points if one["kind"] == LOAD and one["round"] == 1]
    if not _ended(climb, ramp):
        users = ramp.ladder()[len(climb)]
        return {"kind": LOAD, "concurrency": users, "round": 1}
    steps = [one["concurrency"] for one in climb if whole(one)]
    done = {(one["kind"], one["concurrency"], one["round"]) for one in points}
    wanted = [
        *((LOAD, users, number) for number in range(2, ramp.rounds + 1) for users in steps),
        *((PREFILL, knee(points), number) for number in range(1, ramp.rounds + 1) if steps),
    ]
    left = next((one for one in wanted if one not in done), None)
    return None if left is None else dict(zip(("kind", "concurrency", "round"), left))  # noqa: B905 - Python 3.9


def knee(points: Sequence[Mapping[str, Any]]) -> int:
    """Return the fewest users at which more of them bring less than a tenth more tokens a second.

    The median over rounds counts. 0 where no point is whole.
    """
    rates = of_steps(points)
    if not rates:
        return 0
    best = max(rates.values())
    return min(users for users, rate in rates.items() if rate * (1 + GAIN) >= best)


def of_steps(points: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return output tokens a second by concurrency, the median over rounds without a failure."""
    found: dict[int, list[float]] = {}
    for one in points:
        if one["kind"] == LOAD and whole(one):
            rate = float(one["figures"]["output_tokens_per_second"])
            found.setdefault(int(one["concurrency"]), []).append(rate)
    return {users: median(rates) for users, rates in sorted(found.items())}


def whole(point: Mapping[str, Any]) -> bool:
    """Tell whether every request of a point was answered."""
    return not point["figures"]["failed"]


def _ended(climb: Sequence[Mapping[str, Any]], ramp: Ramp) -> bool:
    """Tell whether the first round has all its steps: more users fail, or bring nothing."""
    if len(climb) >= len(ramp.ladder()) or (climb and not whole(climb[-1])):
        return True
    rates = [float(one["figures"]["output_tokens_per_second"]) for one in climb]
    if ramp.steps or len(rates) < 3:
        return False
    return max(rates[-2:]) < max(rates[:-2]) * (1 + GAIN)


def kept_path(cluster_dir: str, engine: str) -> str:
    """Return the file that keeps the points of an engine's ramp."""
    return os.path.join(cluster_dir, "evidence", f"ramp-{engine}.json")


def look(
    cluster_dir: str,
    engine: Served,
    found: Optional[Mapping[str, Any]],
    ramp: Ramp,
    router: Optional[Mapping[str, Any]],
    again: bool,
) -> dict[str, Any]:
    """Return what is kept of a ramp that still holds, and how to measure its next point.

    found is what runs of the serving process, as `processes.looks` reports it; router the same of
    what stands before several.
    """
    if found is None or not found["running"]:
        return {"running": False, "why": (found or {}).get("why") or "it was never started here"}
    mark: dict[str, Any] = {"plan": engine.digest, "instance": found["instance"]}
    if router is not None and router["running"]:
        mark["router"] = engine.router_url
    mark["ramp"] = {**asdict(ramp), "steps": list(ramp.steps), "slo": dict(ramp.slo)}
    kept = _kept(cluster_dir, engine.name)
    holds = kept.get("fingerprint") == mark and not again
    document = {
        "version": VERSION,
        "engine": engine.name,
        "model": engine.served_name,
        "fingerprint": mark,
        "seed": int(kept.get("seed", FIRST_SEED - 1)),
        "points": list(kept["points"]) if holds else [],
    }
    return {"running": True, "document": document, "next": following(cluster_dir, engine, document)}


def following(cluster_dir: str, engine: Served, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to measure the next point of a document, empty when all are measured."""
    ramp = Ramp(**document["fingerprint"]["ramp"])
    point = next_point(document["points"], ramp)
    if point is None:
        return {}
    asked = _asked(engine, document)
    result = os.path.join(cluster_dir, "engines", engine.name, "cache", "ramp.json")
    seed = int(document["seed"]) + 1
    more = options(ramp.slo if point["kind"] == LOAD else {})
    return {
        "point": point,
        "seed": seed,
        "counters": counters(engine.metrics),
        **how(cluster_dir, asked, ramp.settings(point), seed, result, more),
    }


def keep(
    cluster_dir: str,
    engine: Served,
    document: Mapping[str, Any],
    measured: Mapping[str, Any],
    log: str,
) -> dict[str, Any]:
    """Take the result of a point, add it to the document and keep that; return the document.

    measured is what `following` returned before it. Requests that fail end the climb; where they
    do at its first step, or none is answered, there is nothing to go on with.
    """
    shown = shlex.join(measured["argv"])
    point = measured["point"]
    raw = result_file.taken(measured["result"], engine.name, log, shown)
    settings = Ramp(**document["fingerprint"]["ramp"]).settings(point)
    beyond = point["kind"] == LOAD and document["points"]
    if not (beyond and answered(raw)):
        judge(raw, _asked(engine, document), settings, cluster_dir, shown)
    found = {**figures(raw, settings), **_since(measured["counters"], engine, raw)}
    grown = {
        **document,
        "seed": measured["seed"],
        "points": [*document["points"], {**point, "command": shown, "figures": found}],
    }
    launcher.write_json(kept_path(cluster_dir, engine.name), grown, mode=0o644)
    return grown


def figures(raw: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the figures of one point, out of what the client has written."""
    failed = settings.requests - answered(raw)
    seconds = float(raw["duration"])
    good = raw.get("request_goodput")
    found: dict[str, Any] = {
        **asdict(settings),
        "failed": failed,
        "error": next((last_line(one) for one in raw["errors"] if one), "") if failed else "",
        "duration_seconds": round(seconds, 3),
        "tokens_in": int(raw["total_input_tokens"]),
        "tokens_out": int(raw["total_output_tokens"]),
        "requests_per_second": round(float(raw["request_throughput"]), 5),
        "input_tokens_per_second": round(raw["total_input_tokens"] / seconds, 3),
        "output_tokens_per_second": round(float(raw["output_throughput"]), 3),
        "good_requests_per_second": None if good is None else round(float(good), 5),
        "measured_at": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
    }
    for name, called in LATENCIES.items():
        # An answer of one token has no token after its first.
        if settings.output_tokens == 1 and name in ("tpot", "itl"):
            continue
        for percentile in PERCENTILES:
            value = float(raw[f"p{percentile}_{name}_ms"])
            found[f"{called}_p{percentile}"] = round(value, 3)
    return found


def counters(urls: Sequence[str]) -> dict[str, float]:
    """Return what servers have counted since their start; nothing unless all of them say it."""
    pages = [metrics.get(f"{url}/metrics", METRICS_SECONDS) for url in urls]
    if not pages or not all(COUNTERS["finished"] in page for page in pages):
        return {}
    wanted = {
        **COUNTERS,
        **{f"{name}_{part}": PHASE.format(name, part) for name in PHASES for part in PARTS},
    }
    return {
        name: sum(metrics.total(page, metric) for page in pages) for name, metric in wanted.items()
    }


def _since(before: Mapping[str, float], engine: Served, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the servers have counted during a point."""
    now = counters(engine.metrics) if before else {}
    if not now:
        unknown = ("preemptions", "prefix_cache_hit_share", "other_requests")
        return dict.fromkeys((*unknown, *(f"{name}_ms_mean" for name in PHASES)))
    grown = {name: now[name] - before[name] for name in now}
    queries = grown["cache_queries"]
    return {
        "preemptions": int(grown["preemptions"]),
        "prefix_cache_hit_share": round(grown["cache_hits"] / queries, 4) if queries else None,
        # The client may ask one request before it begins.
        "other_requests": max(0, int(grown["finished"]) - int(raw["completed"]) - 1),
        **{
            f"{name}_ms_mean": round(1000 * grown[f"{name}_sum"] / many, 3)
            if (many := grown[f"{name}_count"])
            else None
            for name in PHASES
        },
    }


def _asked(engine: Served, document: Mapping[str, Any]) -> Served:
    """Return the engine by the address that is measured: its router's, where one runs."""
    address = document["fingerprint"].get("router")
    return replace(engine, url=address) if address else engine


def _kept(cluster_dir: str, engine: str) -> dict[str, Any]:
    """Return what is kept; what cannot be read is measured again."""
    try:
        kept = process.read_json(kept_path(cluster_dir, engine)) or {}
    except process.ProcessError:
        return {}
    return kept if kept.get("version") == VERSION else {}
