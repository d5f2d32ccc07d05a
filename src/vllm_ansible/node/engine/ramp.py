"""A ramp of load to the knee: which point is next, what it gave, what of it is kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from statistics import median
from typing import Any, Optional, Union

from .. import launcher
from ..process import process
from . import compilation, load_samples, metrics, result_file
from .benchmark import Client, Served, Settings, answered, how, judge, last_line, unread

VERSION = 2
# A step that brings less than this over the best before it is no gain; two in a row end the climb.
GAIN = 0.1
# Prompts come from the seed. Those of the stage benchmark, whose seeds begin at 0, are others.
FIRST_SEED = 10_000
LOAD, PREFILL = "load", "prefill"
# A user waits for the answer before the next request; requests at a rate wait for none.
USERS, RATE = "users", "rate"
# Forms of files that the client reads without further packages, in its own words. The lengths of a
# trace are taken, and which prompts begin with the same blocks; when they came is not.
RANDOM = "random"
TRACE = ("timed_trace", "--no-self-timed", "--timed-trace-chunk-hash-size")
FILES = {"sharegpt": ("sharegpt",), "mooncake": (*TRACE, "512"), "qwen": (*TRACE, "16")}
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
TIMES = (*PHASES, "engine_e2e")
# From a request's arrival at the API server to its last token there.
WHOLE = "vllm:e2e_request_latency_seconds_{}"
PARTS = ("sum", "count")
SEATS = ("--max-num-seqs", "--max_num_seqs")
METRICS_SECONDS = 10


@dataclass(frozen=True)
class Ramp:
    """What a ramp asks: its steps, or where a climb by doubling ends, and the load of a step.

    arrivals says what a step is: a number of users, or requests a second, which arrive for so many
    seconds, by chance alone (burstiness 1) or in bursts (below 1). also is a step of the climb
    beside the powers of two: the concurrency that was planned for. dataset names the form of the
    file that prompts come from, dataset_path the file, dataset_digest its content.
    """

    steps: tuple[float, ...]
    most: float
    rounds: int
    requests_each: int
    least_requests: int
    input_tokens: int
    output_tokens: int
    slo: Mapping[str, float]
    also: int = 0
    arrivals: str = USERS
    first: float = 1
    seconds: float = 60
    burstiness: float = 1
    dataset: str = RANDOM
    dataset_path: str = ""
    dataset_digest: str = ""

    def ladder(self) -> list[float]:
        """Return the steps in order; numbers of users are whole."""
        if self.steps:
            return sorted({self._number(one) for one in self.steps})
        found = set()
        step = self.first
        while step <= self.most:
            found.add(self._number(step))
            step *= 2
        return sorted(found | ({self.also} if 0 < self.also <= self.most else set()))

    def _number(self, step: float) -> Union[int, float]:
        return int(step) if self.arrivals == USERS else float(step)

    def settings(self, point: Mapping[str, Any]) -> Settings:
        """Return the load of one point; as many at a time as come where they come at a rate."""
        users = self.arrivals == USERS
        many = self.requests_each if users else self.seconds
        return Settings(
            requests=max(self.least_requests, round(many * point["step"])),
            concurrency=int(point["step"]) if users else 0,
            input_tokens=self.input_tokens,
            output_tokens=1 if point["kind"] == PREFILL else self.output_tokens,
        )

    def prompts(self) -> list[str]:
        """Return where the client has prompts from; nothing where they are random."""
        if self.dataset == RANDOM:
            return []
        return ["--dataset-path", self.dataset_path, "--dataset-name", *FILES[self.dataset]]

    def splits(self) -> bool:
        """Tell whether prompts are measured alone: random ones, that users send."""
        return self.arrivals == USERS and self.dataset == RANDOM


def check(ramp: Ramp, name: str) -> None:
    """Refuse a ramp that has no point, or one without a request."""
    users = ramp.arrivals == USERS
    # Each with what it has to reach.
    given = {
        f"benchmark_ramp_{'users' if users else 'rates'}": (
            min(ramp.steps, default=1),
            1 if users else 0.001,
        ),
        f"benchmark_ramp_most_{'users' if users else 'rate'}": (ramp.most, 1 if users else 0.001),
        "benchmark_ramp_first_rate": (ramp.first, 0.001),
        "benchmark_ramp_seconds": (ramp.seconds, 1),
        "benchmark_ramp_burstiness": (ramp.burstiness, 0.001),
        "benchmark_ramp_rounds": (ramp.rounds, 1),
        "benchmark_ramp_requests_each": (ramp.requests_each, 1),
        "the length of an answer": (ramp.output_tokens, 2),
        "benchmark_slo_*_ms": (min(ramp.slo.values(), default=0), 0),
    }
    wrong = [(one, *values) for one, values in given.items() if values[0] < values[1]]
    if wrong:
        called, value, least = wrong[0]
        raise process.ProcessError(
            f"The ramp of {name} cannot be measured: {called} is too small.",
            expected=f"{called} of {least:g} or more",
            found=f"{value:g}",
            where="the variables of the role benchmark",
            fix=f"Set {called} again.",
        )
    if ramp.dataset != RANDOM and not ramp.dataset_path:
        raise process.ProcessError(
            f"The ramp of {name} cannot be measured: {ramp.dataset} names no file.",
            expected="benchmark_dataset_file, a file on the controller",
            found="none",
            where="the variables of the role benchmark",
            fix="Set benchmark_dataset_file to the file with the prompts or the trace.",
        )


def options(slo: Mapping[str, float], rate: float = 0, burstiness: float = 1) -> list[str]:
    """Return what the client is asked for beyond a measurement of the stage benchmark.

    rate is that of requests which wait for no answer, 0 where users send them.
    """
    open_loop = ["--request-rate", f"{rate:g}", "--burstiness", f"{burstiness:g}"] if rate else []
    goodput = [f"{LIMITS[name]}:{limit:g}" for name, limit in slo.items() if limit]
    return [
        # Each answer has the length that was asked for, or rounds would not be the same work.
        "--ignore-eos",
        "--percentile-metrics",
        ",".join(LATENCIES),
        "--metric-percentiles",
        ",".join(map(str, PERCENTILES)),
        *open_loop,
        *(["--goodput", *goodput] if goodput else []),
    ]


def next_point(points: Sequence[Mapping[str, Any]], ramp: Ramp) -> Optional[dict[str, Any]]:
    """Return the point that is to be measured next, None when all are.

    First all steps once, then all of them again in each further round, so that what drifts over
    minutes counts as noise; last, at the knee, the same prompts with answers of one token.
    """
    climb = [one for one in points if one["kind"] == LOAD and one["round"] == 1]
    if not _ended(climb, ramp):
        return {"kind": LOAD, "step": ramp.ladder()[len(climb)], "round": 1}
    steps = [one["step"] for one in climb if whole(one)]
    done = {(one["kind"], one["step"], one["round"]) for one in points}
    alone = range(1, ramp.rounds + 1) if steps and ramp.splits() else ()
    wanted = [
        *((LOAD, step, number) for number in range(2, ramp.rounds + 1) for step in steps),
        *((PREFILL, knee(points), number) for number in alone),
    ]
    left = next((one for one in wanted if one not in done), None)
    return None if left is None else dict(zip(("kind", "step", "round"), left))  # noqa: B905 - Python 3.9


def knee(points: Sequence[Mapping[str, Any]]) -> Union[int, float]:
    """Return the least step after which more load brings less than a tenth more tokens a second.

    The median over rounds counts. 0 where no point is whole.
    """
    rates = of_steps(points)
    if not rates:
        return 0
    best = max(rates.values())
    return min(step for step, rate in rates.items() if rate * (1 + GAIN) >= best)


def of_steps(points: Sequence[Mapping[str, Any]]) -> dict[Union[int, float], float]:
    """Return output tokens a second by step, the median over rounds that are judged."""
    loads = [one for one in points if one["kind"] == LOAD and whole(one)]
    found: dict[Union[int, float], list[float]] = {}
    for one in [one for one in loads if judged(one["figures"])] or loads:
        rate = float(one["figures"]["output_tokens_per_second"])
        found.setdefault(one["step"], []).append(rate)
    return {step: median(rates) for step, rates in sorted(found.items())}


def judged(figures: Mapping[str, Any]) -> bool:
    """Tell whether a rate is the engine's own: all is answered, and nothing compiled meanwhile."""
    return not figures["failed"] and not figures.get("compiled")


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
    client: Optional[Client] = None,
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
    if client:
        mark["generator"] = client.mark(client.asked(_asked(engine, {"fingerprint": mark})))
    mark["ramp"] = {**asdict(ramp), "steps": list(ramp.steps), "slo": dict(ramp.slo)}
    kept = _kept(cluster_dir, engine.name)
    holds = kept.get("fingerprint") == mark and not again
    document = {
        "version": VERSION,
        "engine": engine.name,
        "model": engine.served_name,
        "fingerprint": mark,
        "seed": int(kept.get("seed", FIRST_SEED - 1)),
        # A point during which the engine compiled, until it was measured once more.
        "discarded": kept.get("discarded", {}) if holds else {},
        "points": list(kept["points"]) if holds else [],
    }
    after = following(cluster_dir, engine, document, client)
    return {"running": True, "document": document, "next": after}


def following(
    cluster_dir: str,
    engine: Served,
    document: Mapping[str, Any],
    client: Optional[Client] = None,
) -> dict[str, Any]:
    """Return how to measure the next point of a document, empty when all are measured."""
    ramp = Ramp(**document["fingerprint"]["ramp"])
    point = next_point(document["points"], ramp)
    if point is None:
        return {}
    asked = _asked(engine, document)
    seed = int(document["seed"]) + 1
    rate = point["step"] if ramp.arrivals == RATE else 0
    more = options(ramp.slo if point["kind"] == LOAD else {}, rate, ramp.burstiness)
    prompts = ramp.prompts()
    if client:
        own = os.path.join(client.directory, f"prompts-{engine.name}")
        prompts = [own if one == ramp.dataset_path else one for one in prompts]
    command = how(cluster_dir, asked, ramp.settings(point), seed, "ramp", more, prompts, client)
    if ramp.prompts() and command["cleanup"]:
        raise process.ProcessError(
            f"{engine.name} runs in an image, where its client sees no file of prompts.",
            expected="benchmark_dataset: random",
            found=ramp.dataset,
            where=ramp.dataset_path,
            fix="Measure with random prompts, or serve from an environment that was built.",
        )
    return {
        "point": point,
        "seed": seed,
        "counters": counters(engine.metrics),
        "logs": compilation.logs(cluster_dir, engine.name),
        "seats": seats(cluster_dir, engine),
        "watched": asdict(watched(cluster_dir, asked)),
        "client_watched": asdict(watched_client(asked, client)) if client else {},
        "client_rows": client_rows(cluster_dir, engine.name),
        **command,
    }


def seats(cluster_dir: str, engine: Served) -> int:
    """Return how many requests an engine was allowed to run at a time, 0 where nobody said."""
    record = process.read_json(process.Files(cluster_dir, engine.process).record) or {}
    argv = [str(word) for word in record.get("argv", ())]
    words = [word for one in argv for word in (one.split("=", 1) if one[:2] == "--" else [one])]
    for option in SEATS:
        if option in words[:-1]:
            value = words[words.index(option) + 1]
            return int(value) * max(1, len(engine.metrics)) if value.isdigit() else 0
    return 0


def watched(cluster_dir: str, engine: Served) -> load_samples.Watched:
    """Return what is sampled while an engine is measured."""
    task = f"ramp-{engine.name}"
    return load_samples.Watched(
        cluster_dir=cluster_dir,
        servers=tuple(engine.servers or (engine.process,)),
        urls=tuple(engine.metrics),
        port=int(engine.url.rsplit(":", 1)[-1].rstrip("/")),
        task=os.path.join(cluster_dir, "tasks", f"{task}.json"),
        rows=os.path.join(cluster_dir, "evidence", f"{task}.samples"),
    )


def watched_client(engine: Served, client: Client) -> load_samples.Watched:
    """Return what is sampled on the host of the client; its rows are brought beside the others."""
    task, above = f"ramp-{engine.name}", os.path.dirname(client.directory)
    return load_samples.Watched(
        cluster_dir=above,
        servers=(),
        urls=(),
        port=int(engine.url.rsplit(":", 1)[-1].rstrip("/")),
        task=os.path.join(above, "tasks", f"{task}.json"),
        rows=os.path.join(above, "evidence", f"{task}.samples"),
    )


def client_rows(cluster_dir: str, engine: str) -> str:
    """Return where the samples of the client's host are brought to."""
    return os.path.join(cluster_dir, "evidence", f"ramp-{engine}.client.samples")


def keep(
    cluster_dir: str,
    engine: Served,
    document: Mapping[str, Any],
    measured: Mapping[str, Any],
    log: str,
) -> dict[str, Any]:
    """Take the result of a point, add it to the document and keep that; return the document.

    measured is what `following` returned before it. Requests that fail end the climb; where they
    do at its first step, or none is answered, there is nothing to go on with. A point during which
    the engine compiled is measured once more.
    """
    shown = shlex.join(measured["argv"])
    point = measured["point"]
    raw = result_file.taken(measured["result"], engine.name, log, shown)
    asked = Ramp(**document["fingerprint"]["ramp"])
    settings = asked.settings(point)
    if asked.prompts():
        # A file may hold fewer.
        settings = replace(settings, requests=len(raw["output_lens"]))
    beyond = point["kind"] == LOAD and document["points"]
    if not (beyond and answered(raw)):
        judge(raw, _asked(engine, document), settings, cluster_dir, shown)
    found = {
        **figures(raw, settings),
        **_lag(raw, settings, point, document),
        **_since(measured["counters"], engine, raw),
        **_sampled(measured, raw, client_rows(cluster_dir, engine.name)),
        "seats": measured["seats"] or None,
        "compiled": compilation.since(measured["logs"]),
    }
    kept = {**point, "command": shown, "figures": found}
    grown = {**document, "seed": measured["seed"], "discarded": {}}
    if found["compiled"] and not found["failed"] and not _again(document, point):
        grown["discarded"] = kept
    else:
        grown["points"] = [*document["points"], kept]
    launcher.write_json(kept_path(cluster_dir, engine.name), grown, mode=0o644)
    return grown


def _again(document: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Tell whether a point is measured once more, because the engine compiled the first time."""
    before = document.get("discarded") or {}
    return all(before.get(name) == value for name, value in point.items())


def _lag(
    raw: Mapping[str, Any],
    settings: Settings,
    point: Mapping[str, Any],
    document: Mapping[str, Any],
) -> dict[str, Any]:
    """Return by how much of their time requests at a rate were sent too late, as a share."""
    times = raw.get("start_times") or ()
    open_loop = document["fingerprint"]["ramp"].get("arrivals") == RATE
    if not open_loop or len(times) < 2:
        return {"send_lag_share": None}
    wanted = settings.requests / point["step"]
    return {"send_lag_share": round(max(0.0, (max(times) - min(times)) / wanted - 1), 4)}


def _sampled(measured: Mapping[str, Any], raw: Mapping[str, Any], rows: str) -> dict[str, Any]:
    """Return what was sampled between the first request of a point and its last answer.

    The client has the times of both, by the clock of its host. Where that is another one than the
    engine's, rows are its samples, and the engine's are those with requests.
    """
    starts, ends = raw.get("start_times") or (), raw.get("latencies") or ()
    since = min(starts) if starts else None
    until = max(map(sum, zip(starts, ends))) if starts and ends else None  # noqa: B905 - Python 3.9
    of_engine = measured["watched"]["rows"]
    if not measured.get("client_watched"):
        return load_samples.summary(load_samples.read(of_engine, since, until))
    seen = load_samples.loaded(load_samples.read(of_engine, None, None))
    own = load_samples.summary(load_samples.read(rows, since, until))
    return {**load_samples.summary(seen), **load_samples.of_client(own)}


def figures(raw: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the figures of one point, out of what the client has written."""
    lost = unread(raw)
    failed = settings.requests - answered(raw) - lost
    seconds, mean = float(raw["duration"]), raw.get("mean_e2el_ms")
    good = raw.get("request_goodput")
    found: dict[str, Any] = {
        **asdict(settings),
        "failed": failed,
        **({"unread": lost} if lost else {}),
        "error": next((last_line(one) for one in raw["errors"] if one), "") if failed else "",
        "duration_seconds": round(seconds, 3),
        "tokens_in": int(raw["total_input_tokens"]),
        "tokens_out": int(raw["total_output_tokens"]),
        "requests_per_second": round(float(raw["request_throughput"]), 5),
        "input_tokens_per_second": round(raw["total_input_tokens"] / seconds, 3),
        "output_tokens_per_second": round(float(raw["output_throughput"]), 3),
        "good_requests_per_second": None if good is None else round(float(good), 5),
        "e2e_ms_mean": None if mean is None else round(float(mean), 3),
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
        **{f"engine_e2e_{part}": WHOLE.format(part) for part in PARTS},
    }
    return {
        name: sum(metrics.total(page, metric) for page in pages) for name, metric in wanted.items()
    }


def _since(before: Mapping[str, float], engine: Served, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the servers have counted during a point."""
    now = counters(engine.metrics) if before else {}
    if not now:
        unknown = ("preemptions", "prefix_cache_hit_share", "other_requests")
        return dict.fromkeys((*unknown, *(f"{name}_ms_mean" for name in TIMES)))
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
            for name in TIMES
        },
    }


def _asked(engine: Served, document: Mapping[str, Any]) -> Served:
    """Return the engine by the address that is measured: also its router's, or a door's."""
    mark = document["fingerprint"]
    address = mark.get("generator", {}).get("url") or mark.get("router")
    return replace(engine, url=address) if address else engine


def _kept(cluster_dir: str, engine: str) -> dict[str, Any]:
    """Return what is kept; what cannot be read is measured again."""
    try:
        kept = process.read_json(kept_path(cluster_dir, engine)) or {}
    except process.ProcessError:
        return {}
    if kept.get("version") == VERSION:
        return kept
    # Prompts of an earlier release's ramp are not sent again: the engine may still hold them.
    return {"seed": kept["seed"]} if "seed" in kept else {}
