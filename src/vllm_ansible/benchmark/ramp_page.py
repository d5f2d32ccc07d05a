"""The page of a ramp: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vllm_ansible.node.engine.ramp import USERS

from .bottleneck import NOT_REACHED, UNKNOWN, percent
from .ramp import (
    GOOD_SHARE,
    PERCENTILES,
    at,
    dollars,
    knee_reached,
    line,
    load_words,
    medians,
    steps_words,
)
from .ramp_figure import Mark, Series, figure

LIMITS = {"ttft_ms": "first token", "tpot_ms": "time per token", "e2e_ms": "whole answer"}
Result = Mapping[str, Any]


def page(result: Result) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, dollars=dollars, share=share)
    return environment.get_template("ramp.html.j2").render(
        result=result,
        headline=line(result),
        knee=at(result, result["knee"]),
        place="knee" if knee_reached(result) else "last step",
        figures_of=medians,
        limits=LIMITS,
        good_share=GOOD_SHARE,
        unit=_unit(result),
        load_words=lambda step: load_words(result, step),
        compiled=steps_words(result, [one["step"] for one in result["steps"] if one["compiled"]]),
        unnamed=(NOT_REACHED, UNKNOWN),
        # Drawn of numbers and of names that are escaped.
        figures=[Markup(one) for one in figures(result) if one],  # noqa: S704 see above
    )


def number(value: Any, digits: int = 1) -> str:
    """Return a measured number as people read it."""
    if value is None:
        return "not measured"
    whole = abs(value) >= 100 or float(value).is_integer()
    return f"{value:,.{0 if whole else digits}f}"


def share(value: float | None) -> str:
    """Return a measured part of one as people read it."""
    return "not measured" if value is None else percent(value)


def _unit(result: Result) -> str:
    return "users" if result["arrivals"] == USERS else "requests/s"


def figures(result: Result) -> list[str]:
    """Return the figures: rate, goodput, first token, between tokens, whole answers, cost."""
    knee = result["knee"] if knee_reached(result) else 0
    planned, goodput = result["planned"], result["goodput"]
    across = _unit(result)
    slo = goodput["slo"] if goodput else {}
    expected = []
    if planned and planned["same_load"]:
        low, _, high = planned["output_tokens_per_second"]
        expected = [Mark("planned", low, high, planned["users"])]
    rates = figure(
        "Output of the engine",
        "tokens/s",
        [_series(result, "tokens/s", "output_tokens_per_second")],
        knee,
        expected,
        across,
    )
    requests = figure(
        "Answers",
        "requests/s",
        [
            _series(result, "all", "requests_per_second"),
            _series(result, "within the objectives", "good_requests_per_second", "6 4"),
        ],
        knee,
        across=across,
    )
    latencies = [
        figure(
            title,
            "ms",
            [_series(result, f"p{one}", f"{name}_p{one}") for one in PERCENTILES],
            knee,
            [Mark("objective", slo[name], slo[name])] if slo.get(name) else [],
            across,
        )
        for name, title in (
            ("ttft_ms", "Time to first token"),
            ("itl_ms", "Time between tokens"),
            ("e2e_ms", "Time to the whole answer"),
        )
    ]
    spent = {
        step["step"]: (step["cost"]["usd_per_million_tokens"],) * 3
        for step in result["steps"]
        if step.get("cost")
    }
    cost = figure(
        "A million tokens, in or out",
        "US dollars",
        [Series("at the median rate", spent)],
        knee,
        across=across,
    )
    return [rates, requests, *latencies, cost]


def _series(result: Result, name: str, kpi: str, dash: str = "") -> Series:
    values = {
        step["step"]: (one["median"], one["least"], one["most"])
        for step in result["steps"]
        if (one := step["figures"].get(kpi))
    }
    return Series(name, values, dash)
