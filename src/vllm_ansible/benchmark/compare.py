"""Two kept ramps side by side, with a verdict that knows their noise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from vllm_ansible.benchmark.difference import (
    HIGHER,
    LOWER,
    SAME,
    UNKNOWN,
    Difference,
    difference,
)
from vllm_ansible.benchmark.ramp import VERSION, dollars, steps_words
from vllm_ansible.node.engine.ramp import RANDOM, USERS, judged
from vllm_ansible.problem import PlanError, Problem

# What is judged, whether more of it is better, and how it is called.
JUDGED = {
    "output_tokens_per_second": (True, "tokens/s out"),
    "ttft_ms_p90": (False, "TTFT p90, ms"),
    "itl_ms_p50": (False, "ITL p50, ms"),
    "e2e_ms_p90": (False, "whole answer p90, ms"),
}
# That a verdict on any of them is wrong by chance.
ERROR = 0.05
BETTER, WORSE = "better", "worse"
OF_ENGINE = ("model", "host", "router", "ranks", "plan", "instance")
# What has no value for people, where it differs.
DIGESTS = {"plan": "the plan of the engine differs", "instance": "the server was started again"}
Result = Mapping[str, Any]


def read(place: str, engine: str) -> dict[str, Any]:
    """Return the ramp in a file, or in the directory of a run."""
    path = Path(place)
    files = sorted(path.glob(f"ramp-{engine or '*'}.json")) if path.is_dir() else [path]
    if len(files) != 1:
        names = ", ".join(one.name for one in files)
        raise PlanError(
            Problem(
                f"which ramp of {place} is meant?" if files else f"{place} has no ramp",
                expected="one file ramp-ENGINE.json",
                found=names or "none",
                where=place,
                fix="name the engine with --engine" if files else "run playbooks/ramp.yml first",
            )
        )
    try:
        found = json.loads(files[0].read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("version") != VERSION or "steps" not in found:
            raise ValueError("it is not the JSON file of a ramp of this release")
    except (OSError, ValueError) as error:
        raise PlanError(
            Problem(
                f"{files[0]} cannot be read as a ramp",
                expected="ramp-ENGINE.json as playbooks/ramp.yml writes it",
                found=str(error),
                where=str(files[0]),
                fix="give the directory of a run of playbooks/ramp.yml, or its JSON file",
            )
        ) from error
    return found


def compared(a: Result, b: Result, margin: float) -> dict[str, Any]:
    """Return both beside each other over the steps that both have, and the verdict."""
    loads = [_load(one) for one in (a, b)]
    steps = [one for one in _steps(a) if one in _steps(b)]
    tried = {one["step"] for one in b["steps"] if one["failed"]}
    fails = [one for one in _steps(a) if one in tried]
    if loads[0] != loads[1] or not (steps or fails):
        words = [
            f"{load} at {steps_words(one, _steps(one))}"
            for load, one in zip(loads, (a, b), strict=True)
        ]
        raise PlanError(
            Problem(
                "the two ramps cannot be compared: they are not the same load",
                expected=words[0],
                found=words[1],
                where="A and B",
                fix="measure both with the same prompts and the same users or rates",
            )
        )
    # Where B failed at every step there are no figures to hold against each other.
    rows = [_row(name, a, b, steps, margin) for name in JUDGED] if steps else []
    at_each = [
        {"step": number, **_row("output_tokens_per_second", a, b, [number], margin)}
        for number in steps
    ]
    return {
        "arrivals": a["arrivals"],
        "steps": steps,
        "margin": margin,
        "error": ERROR,
        "verdict": WORSE if fails else verdict([row["verdict"] for row in rows]),
        "fails": fails,
        "judged": rows,
        "each": at_each,
        "knees": [a["knee"], b["knee"]],
        "step_within": [(one["goodput"] or {}).get("step_within") for one in (a, b)],
        "costs": [(one["cost"] or {}).get("usd_per_million_tokens") for one in (a, b)],
        "prices": [one["price"].get("usd_per_hour") for one in (a, b)],
        "differs": {
            name: [a.get(name), b.get(name)] for name in OF_ENGINE if a.get(name) != b.get(name)
        },
    }


def _load(result: Result) -> str:
    """Return in words what was sent, the same for the same load."""
    load = result["load"]
    if load["dataset"] == RANDOM:
        words = f"{load['input_tokens']} tokens in, {load['output_tokens']} out"
    else:
        words = f"{load['dataset']} {load['digest'][:12]}"
    return words if result["arrivals"] == USERS else f"{words}, burstiness {result['burstiness']:g}"


def _steps(result: Result) -> list[float]:
    """Return the steps that were measured without a failure, in a round at least that is judged."""
    steps = [one for one in result["steps"] if one["figures"] and not one["failed"]]
    return [one["step"] for one in steps if any(map(judged, one["rounds"]))]


def _row(name: str, a: Result, b: Result, steps: Sequence[float], margin: float) -> dict[str, Any]:
    more, called = JUDGED[name]
    of_a, of_b = _rounds(a, name, steps), _rounds(b, name, steps)
    found = difference(of_a, of_b, margin, ERROR / len(JUDGED))
    return {
        "kpi": name,
        "called": called,
        "a": _mean(of_a),
        "b": _mean(of_b),
        "ratio": found.ratio if found else None,
        "low": found.low if found else None,
        "high": found.high if found and math.isfinite(found.high) else None,
        "verdict": _judged(found, more),
    }


def _rounds(result: Result, name: str, steps: Sequence[float]) -> list[list[float]]:
    """Return the values of each round that has all these steps, and is judged at each."""
    found = [
        {one["round"]: float(one[name]) for one in step["rounds"] if judged(one)}
        for step in result["steps"]
        if step["step"] in steps
    ]
    every = sorted(set.intersection(*(set(one) for one in found)))
    return [[one[number] for one in found] for number in every]


def _mean(rounds: Sequence[Sequence[float]]) -> float:
    """Return the geometric mean of all values, as the ratio is made of."""
    values = [value for one in rounds for value in one]
    return math.exp(fmean(map(math.log, values))) if values and min(values) > 0 else 0.0


def _judged(found: Difference | None, more: bool) -> str:
    if found is None:
        return UNKNOWN
    if found.word in (HIGHER, LOWER):
        return BETTER if (found.word == HIGHER) == more else WORSE
    return found.word


def verdict(words: Sequence[str]) -> str:
    """Return what holds of all: worse where one is, unknown where one is, else better or same."""
    return next(one for one in (WORSE, UNKNOWN, BETTER, SAME) if one in words)


def as_text(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the comparison as people read it."""
    lines = [f"A  {names[0]}", f"B  {names[1]}"]
    for name, (one, other) in found["differs"].items():
        lines.append(f"   {DIGESTS.get(name) or f'{name}: {one} in A, {other} in B'}")
    number = steps_words(found, found["steps"]) if found["steps"] else ""
    unit = "users" if found["arrivals"] == USERS else "requests/s"
    if number:
        lines += ["", f"over {number}, geometric means:"]
        lines.append(f"{'':22}{'A':>12}{'B':>12}   B to A")
    for row in found["judged"]:
        means = f"{row['called']:22}{row['a']:12,.1f}{row['b']:12,.1f}"
        lines.append(f"{means}   {_bounds(row)}  {row['verdict']}")
    lines += ["", f"tokens/s out by {unit}:"] if number else []
    for row in found["each"]:
        lines.append(f"{row['step']:>6,}{'':16}{row['a']:12,.1f}{row['b']:12,.1f}   {_bounds(row)}")
    lines.append("")
    lines.append(f"{f'knee, {unit}':22}{found['knees'][0]:>12}{found['knees'][1]:>12}")
    if None not in found["step_within"]:
        within = found["step_within"]
        lines.append(f"{f'{unit} within limits':22}{within[0]:>12}{within[1]:>12}")
    if None not in found["costs"]:
        spent = [dollars(one) for one in found["costs"]]
        lines.append(f"{'$ a million tokens':22}{spent[0]:>12}{spent[1]:>12}   {_prices(found)}")
    return "\n".join([*lines, "", _sentence(found)]) + "\n"


def _bounds(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return "not comparable"
    if row["high"] is None:
        return f"{_percent(row['ratio'])} (one round: noise unknown)"
    return f"{_percent(row['ratio'])} ({_percent(row['low'])} to {_percent(row['high'])})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _prices(found: Mapping[str, Any]) -> str:
    one, other = found["prices"]
    same = f"both at ${one:,.2f}/h"
    return same if one == other else f"at ${one:,.2f}/h and ${other:,.2f}/h: prices differ"


def _sentence(found: Mapping[str, Any]) -> str:
    """Return the verdict in a sentence."""
    margin = f"{100 * found['margin']:g} %"
    named = {
        word: [row["called"] for row in found["judged"] if row["verdict"] == word]
        for word in (WORSE, UNKNOWN, BETTER, SAME)
    }
    each = [f"B fails at {steps_words(found, found['fails'])}"] if found["fails"] else []
    each += [f"{word}: {', '.join(those)}" for word, those in named.items() if those]
    said = {
        WORSE: "B is worse than A",
        UNKNOWN: f"unknown whether B is worse by more than {margin}: "
        "the noise is larger. Measure more rounds on a quiet machine",
        BETTER: "B is better than A",
        SAME: f"B is as A, within {margin}",
    }
    return f"{said[found['verdict']]} ({'; '.join(each)})"
