"""Kept ramps of an engine that is known: its rate grows with users until its seats are taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from vllm_ansible.benchmark.ramp import found
from vllm_ansible.node.engine import ramp
from vllm_ansible.node.engine.ramp import Ramp

TOLD, SAID = 64, 32
ENGINE = {
    "name": "chat",
    "hosts": ["n1"],
    "ranks": [{"rank": 0, "host": "n1", "device": 0}],
    "ports": {"api": 8000},
    "estimate": {},
}
PRICE = {
    "usd_per_hour": 3.6,
    "hosts": [
        {
            "host": "n1",
            "usd_per_hour": 3.6,
            "source": "benchmark_usd_per_hour",
            "ranks": 1,
            "ranks_of_all_engines": 1,
        }
    ],
}
# As the log of an H200 had it: tests/data/h200-layouts.json.
COMPILED = "Triton kernel JIT compilation during inference: fused_moe_kernel"
Noise = Callable[[int], float]


def asked(**more: Any) -> Ramp:
    wanted: dict[str, Any] = {
        "steps": (),
        "most": 1024,
        "rounds": 3,
        "requests_each": 2,
        "least_requests": 8,
        "input_tokens": TOLD,
        "output_tokens": SAID,
        "slo": {"ttft_ms": 0.0, "tpot_ms": 0.0, "e2e_ms": 0.0},
    }
    return Ramp(**{**wanted, **more})


def figures(
    ramped: Ramp, point: Mapping[str, Any], seats: int, speed: float, failing: int
) -> dict[str, Any]:
    """Return what `ramp.figures` would, of an engine that completes a request in a second."""
    users, prompts = point["step"], point["kind"] == ramp.PREFILL
    requests = min(users, seats) * speed * (4 if prompts else 1)
    seconds = 1000 * max(users, seats) / seats / speed
    said = 1 if prompts else SAID
    failed = 1 if failing and users >= failing else 0
    shown = {
        "requests": ramped.settings(point).requests,
        "failed": failed,
        "error": "Service Unavailable" if failed else "",
        "input_tokens": TOLD,
        "output_tokens": said,
        "duration_seconds": 8.0,
        "tokens_in": int(requests * TOLD * 8),
        "tokens_out": int(requests * said * 8),
        "requests_per_second": requests,
        "input_tokens_per_second": requests * TOLD,
        "output_tokens_per_second": requests * said,
        "good_requests_per_second": requests if users <= seats else 0.0,
        "measured_at": "2026-11-25 12:00:00 UTC",
        "queue_ms_mean": max(0.0, seconds - 1000 / speed),
        "prefill_ms_mean": 90 / speed,
        "decode_ms_mean": 28 * 31 / speed,
        "preemptions": 0,
        "prefix_cache_hit_share": 0.0,
        "other_requests": 0,
        "compiled": "",
        "e2e_ms_mean": seconds,
        "engine_e2e_ms_mean": seconds,
        "seats": seats,
        "running_most": float(min(users, seats)),
        "running_mean": float(min(users, seats)),
        "waiting_mean": float(max(0, users - seats)),
        "seats_full_share": 1.0 if users > seats else 0.0,
        "cache_full_share": 0.0,
        "client_busy": 0.2,
        "client_cpus": 0.1,
        "host_cpus": 2,
        "front_end_busy": 0.2,
        "server_unsent_share": 0.0,
    }
    for place, percentile in enumerate(ramp.PERCENTILES):
        spread = 1 + 0.2 * place
        shown[f"ttft_ms_p{percentile}"] = 100 / speed * spread + max(0.0, seconds - 1000 / speed)
        shown[f"tpot_ms_p{percentile}"] = shown[f"itl_ms_p{percentile}"] = 28 / speed * spread
        shown[f"e2e_ms_p{percentile}"] = seconds * spread
    return shown


def points(
    ramped: Ramp,
    seats: int = 6,
    failing: int = 0,
    noise: Noise = lambda _: 1.0,
    compiling: tuple[int, int] = (0, 0),
) -> list[dict[str, Any]]:
    """Return all points in the order in which they would be measured.

    compiling: the step and the round in which the engine compiles, and answers a sixth.
    """
    known: list[dict[str, Any]] = []
    while (point := ramp.next_point(known, ramped)) is not None:
        compiles = (point["step"], point["round"]) == compiling and point["kind"] == ramp.LOAD
        speed = noise(point["round"]) / (6 if compiles else 1)
        one = figures(ramped, point, seats, speed, failing)
        one["compiled"] = COMPILED if compiles else ""
        known.append({**point, "command": "vllm bench serve", "figures": one})
    return known


def result(
    ramped: Ramp,
    engine: Mapping[str, Any] = ENGINE,
    price: Mapping[str, Any] = PRICE,
    **more: Any,
) -> dict[str, Any]:
    """Return what is reported of such a ramp."""
    mark = {
        "plan": "p",
        "instance": "i",
        "ramp": {**vars_of(ramped), "steps": list(ramped.steps)},
    }
    document = {
        "engine": "chat",
        "model": "smollm2",
        "fingerprint": mark,
        "points": points(ramped, **more),
    }
    return found(document, engine, price)


def vars_of(ramped: Ramp) -> dict[str, Any]:
    return {name: getattr(ramped, name) for name in ramped.__dataclass_fields__}


def noisy(seed: int, single: float, of_round: float = 0.0, speed: float = 1.0) -> Noise:
    """Return noise of each point, and of each round as a whole, about a speed."""
    chance = random.Random(seed)  # noqa: S311 - noise, no secret
    rounds: dict[int, float] = {}

    def drawn(number: int) -> float:
        whole = rounds.setdefault(number, chance.gauss(0, of_round))
        return speed * (1 + whole + chance.gauss(0, single))

    return drawn
