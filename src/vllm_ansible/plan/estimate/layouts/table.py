"""An answer as lines for a console, and as a document for a program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.layouts import apart
from vllm_ansible.plan.estimate.layouts.answer import Answer
from vllm_ansible.plan.estimate.layouts.verdict import GIB, Verdict
from vllm_ansible.plan.estimate.throughput.estimate import Band, Estimate

SHOWN = 8
WIDTH = 100


def lines(answer: Answer, everything: bool = False) -> list[str]:
    """Return the plan as people read it; `everything` shows every other layout, not the best."""
    request, chosen = answer.request, answer.chosen
    ranks = chosen.candidate.ranks * chosen.candidate.replicas
    network = ""
    if len(request.machines.nodes) > 1:
        network = f", {request.machines.fabric.node_rate * 8 / 1e9:,.0f} Gb/s a node"
    told = [
        f"{request.model.name} ({stored(request.model)}) on {request.machines.line()}{network}"
        f", vLLM {request.engine_version}{', eager' if request.eager else ''}",
        "",
        f"  {chosen.candidate.name}: {ranks} of {request.machines.devices} devices, "
        f"{_plural(chosen.nodes, 'node')} an engine",
        *_memory(answer),
        f"  at {request.input_tokens:,} tokens a prompt and {request.output_tokens:,} a reply, in "
        "brackets what may be measured:",
        *_speed(answer),
        "",
        *_starts(answer),
        *(f"  note  {note}" for note in answer.notes),
        "",
        *_others(answer, everything),
    ]
    return [line.rstrip() for line in told]


def stored(model: Model) -> str:
    """Return how a model's weights are stored, in words."""
    return "not quantized" if model.quantization == "none" else model.quantization


def document(answer: Answer) -> dict[str, Any]:
    """Return the plan as JSON holds it: bytes, tokens, seconds, tokens per second."""
    request, chosen = answer.request, answer.chosen
    return {
        "model": request.model.name,
        "quantization": request.model.quantization,
        "machines": request.machines.line(),
        "engine_version": request.engine_version,
        "objective": request.objective,
        "concurrency": request.concurrency,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "chosen": verdict_document(chosen),
        "arguments": list(answer.start.arguments),
        "followers": [list(words) for words in answer.start.followers],
        "environment": answer.start.environment,
        "alone": estimate_document(answer.alone),
        "saturated": estimate_document(answer.saturated),
        "ranks": [
            {"engine": seat.engine, "rank": seat.rank, "stage": seat.stage}
            | {"node": seat.node, "device": seat.device}
            for seat in answer.seats()
        ],
        "notes": list(answer.notes),
        "others": [
            {**verdict_document(other), "reason": reason} for other, reason in answer.others
        ],
    }


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return one candidate with its memory by stage and its estimate."""
    one = verdict.candidate
    found: dict[str, Any] = {
        "name": one.name,
        "tensor": one.tensor,
        "pipeline": one.pipeline,
        "data": one.data,
        "expert": one.expert,
        "replicas": one.replicas,
        "accepted": verdict.accepted,
    }
    if verdict.layer_partition:
        found["layer_partition"] = list(verdict.layer_partition)
    if verdict.budget:
        held = verdict.budget
        found["stages"] = [
            {
                "weights_bytes": round(stage.weights),
                "overhead_bytes": _three(
                    stage.overhead.low, stage.overhead.mid, stage.overhead.high
                ),
                "kv_bytes": _three(stage.kv_bytes.low, stage.kv_bytes.mid, stage.kv_bytes.high),
            }
            for stage in held.stages
        ]
        found["kv_tokens"] = _three(*held.kv_tokens)
    if verdict.load:
        found["load"] = estimate_document(verdict.load)
        found["output_tokens_per_second"] = round(verdict.output_rate, 1)
    return found


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate of one engine with its bands."""
    return {
        "concurrency": estimate.concurrency,
        "running": estimate.running,
        "output_tokens_per_second": _band(estimate.output_rate),
        "seconds_per_token": _band(estimate.token_time),
        "seconds_to_first_token": _band(estimate.first_token),
        "seconds_to_first_token_at_once": {
            "half": _short(estimate.wave.half),
            "all": _short(estimate.wave.last),
        },
        "prefill_tokens_per_second": round(estimate.prefill_rate, 1),
    }


def _memory(answer: Answer) -> list[str]:
    held = answer.chosen.budget
    if held is None:
        return []
    told = []
    sizes = [
        f"{stage.weights / GIB:.2f} GiB of weights, {stage.overhead.mid / GIB:.1f} of overhead, "
        f"{stage.kv_bytes.mid / GIB:.1f} of KV cache"
        for stage in held.stages
    ]
    for place, words in enumerate(sizes):
        if place and words == sizes[place - 1]:
            continue
        last = place
        while last + 1 < len(sizes) and sizes[last + 1] == words:
            last += 1
        stage = "" if last - place + 1 == len(sizes) else f" of stage {place}"
        stage = f" of stages {place} to {last}" if stage and last > place else stage
        told.append(f"  a rank{stage}: {words}")
    low, middle, high = held.kv_tokens
    ranks = (
        f" on each of {answer.chosen.candidate.data}" if answer.chosen.candidate.data > 1 else ""
    )
    told.append(
        f"  KV cache: {middle:,} tokens{ranks} ({low:,} to {high:,}), "
        f"{held.max_concurrency[1]:.1f} requests of {answer.request.longest:,} at once"
    )
    return told


def _speed(answer: Answer) -> list[str]:
    request, replicas = answer.request, answer.chosen.candidate.replicas
    alone, full = answer.alone, answer.saturated
    rows = [
        ("1 request an engine", alone, alone.output_rate.times(replicas)),
        (f"{request.concurrency} requests", answer.chosen.load, answer.chosen.rates),
        (
            f"saturated ({full.running * replicas:,.0f} running)",
            full,
            full.output_rate.times(replicas),
        ),
    ]
    told = [
        f"  {name:<26}{rate(together):<36}"
        f"{one.token_time.middle * 1e3:.1f} ms a token, first after {_seconds(one.first_token)}"
        for name, one, together in rows
        if one is not None
    ]
    return [*told[:2], *_at_once(answer.chosen.load), *told[2:]]


def _at_once(load: Estimate | None) -> list[str]:
    """Return when first tokens come if all clients of an engine ask together.

    Prompts are then taken in one after the other; the rows beside it are of clients that come one
    by one.
    """
    if load is None or load.concurrency <= 1 or load.running < load.concurrency:
        return []
    half, last = (apart.seconds(one) for one in (load.wave.half, load.wave.last))
    words = f"half have their first token after {half}, all after {last}"
    return [f"    all asked at once       {words}"]


def _starts(answer: Answer) -> list[str]:
    variables = [f"{name}={value}" for name, value in answer.start.environment.items()]
    command = [*variables, "vllm", "serve", answer.request.model.name, *answer.start.arguments]
    told = _wrapped(command)
    for place, words in enumerate(answer.start.followers[:1], 2):
        told += [f"  on node {place} and on, each with its own start rank:"]
        told += _wrapped(["vllm", "serve", answer.request.model.name, *words])
    return told


def _wrapped(words: Sequence[str]) -> list[str]:
    """Return a command over several lines, each flag with its value."""
    pieces: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if pieces and not word.startswith("-") and pieces[-1].startswith("--"):
            pieces[-1] += f" {quoted}"
        else:
            pieces.append(quoted)
    told, line = [], "  $"
    for piece in pieces:
        if len(line) + len(piece) + 1 > WIDTH - 2:
            told.append(line + " \\")
            line = "     "
        line += f" {piece}"
    return [*told, line]


def _others(answer: Answer, everything: bool) -> list[str]:
    others = answer.others if everything else answer.others[:SHOWN]
    if not others:
        return []
    told = ["  why not"]
    told += [f"    {other.candidate.name:<18} {reason}" for other, reason in others]
    if len(others) < len(answer.others):
        told.append(f"    {len(answer.others) - len(others)} more with --all")
    return told


def rate(band: Band) -> str:
    """Return a rate with its band."""
    return f"{_number(band.middle)} tokens/s ({_number(band.low)} to {_number(band.high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _seconds(band: Band) -> str:
    return f"{band.middle:.1f} s" if band.middle >= 1 else f"{band.middle * 1e3:.0f} ms"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def _band(band: Band) -> dict[str, float]:
    return {"low": _short(band.low), "middle": _short(band.middle), "high": _short(band.high)}


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _three(*values: float) -> list[int]:
    return [round(value) for value in values]
