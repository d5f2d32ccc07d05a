"""The report of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup, escape

from vllm_ansible.plan.estimate.layouts.picture import of_plan
from vllm_ansible.record.engine_start import CAUSES, FIRST_ANSWER
from vllm_ansible.sweep.figure import figure as sweep_figure
from vllm_ansible.sweep.table import rows as sweep_rows

from .. import terminal as console
from .heat_map import heat_map
from .redact import redact, visible
from .summary import Summary, summarise

FILE = "report.html"
UNKNOWN = "not measured"
_HEADLINE = {
    "done": "Up and answering",
    "checked": "Checked, nothing was changed",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "not finished": "Not finished",
}


def write(run_dir: str | Path) -> Path:
    """Render the report of a run into its directory and return its path."""
    path = Path(run_dir) / FILE
    page = render(summarise(run_dir))
    # A reader who reloads must never see half a page.
    draft = path.with_suffix(".new")
    draft.write_text(visible(page), encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(path)
    return path


def render(summary: Summary) -> str:
    """Return the page of a run."""
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        # A record may lack any part; what is missing is said to be so.
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(duration=console.duration, figure=figure, marked=marked)
    whole = max(
        [summary.seconds, *(stage.start + stage.seconds for stage in summary.stages)], default=0
    )
    return environment.get_template("report.html.j2").render(
        run=summary,
        headline=headline(summary),
        whole=whole or 1.0,
        engines=engines(summary),
        # Drawn here, of numbers and of names that are escaped.
        memory=Markup(of_plan(_mappings(summary.plan.get("engines")))),  # noqa: S704 see above
        starts=starts(summary),
        links=links(summary),
        sweep=sweep(summary),
        hosts=hosts(summary),
        versions=versions(summary),
        failures=failures(summary),
        unknown=UNKNOWN,
    )


def headline(summary: Summary) -> str:
    """Return the result in a few words; only an answer lets the report say that it answers."""
    text = _HEADLINE[summary.result]
    if summary.result == "done" and not summary.engines("serve"):
        text = "Done"
    where = summary.stages[-1].name if summary.stages else ""
    return (
        f"{text} in stage {where}"
        if summary.result in ("failed", "interrupted") and where
        else text
    )


def figure(value: Any, unit: str = "") -> str:
    """Return a measured number as people read it, or that it was not measured."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value if value is not None else "") or UNKNOWN
    digits = 0 if abs(value) >= 100 or float(value).is_integer() else 1
    return f"{value:,.{digits}f} {unit}".strip()


def marked(text: Any) -> Markup:
    """Return a text in which what stands between backticks is set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 escaped


def engines(summary: Summary) -> list[dict[str, Any]]:
    """Return each engine with its layout, its answer and its figures."""
    planned = {str(one.get("name")): one for one in _mappings(summary.plan.get("engines"))}
    answers, measured = summary.engines("serve"), summary.engines("benchmark")
    # A host keeps its colour over all engines.
    colours = {name: number % 6 for number, name in enumerate(_host_names(summary))}
    names = list(dict.fromkeys([*planned, *answers, *measured]))
    return [
        {
            "name": name,
            "plan": planned.get(name, {}),
            "grid": grid(planned.get(name, {}), colours),
            "answer": answers.get(name, {}),
            "measured": measured.get(name, {}),
        }
        for name in names
    ]


def starts(summary: Summary) -> dict[str, Any]:
    """Return the causes for which starts took their time, and each engine's seconds by cause."""
    found = {
        name: {cause: one for cause, one in seconds.items() if isinstance(one, int | float)}
        for name, answer in summary.engines("serve").items()
        if isinstance(seconds := answer.get("start_seconds"), Mapping)
    }
    named = {cause for seconds in found.values() for cause in seconds}
    known = [cause for cause in (*CAUSES, FIRST_ANSWER) if cause in named]
    return {
        "causes": [*known, *sorted(named - set(known))],
        "rows": [
            {"engine": name, "seconds": seconds, "whole": sum(seconds.values())}
            for name, seconds in found.items()
            if seconds
        ],
    }


def grid(engine: Mapping[str, Any], colours: Mapping[str, int]) -> list[list[dict[str, Any]]]:
    """Return the ranks of an engine: a row a stage or data rank, a column a tensor rank."""
    layout = engine.get("layout") or {}
    tensor = max(int(layout.get("tensor") or 1), 1)
    ranks = sorted(_mappings(engine.get("ranks")), key=lambda one: int(one.get("rank") or 0))
    cells = [{**rank, "colour": colours.get(str(rank.get("host")), 0)} for rank in ranks]
    return [cells[first : first + tensor] for first in range(0, len(cells), tensor)]


def hosts(summary: Summary) -> list[dict[str, Any]]:
    """Return the hosts with the ranks each of them runs."""
    ranks: dict[str, list[str]] = {}
    for engine in _mappings(summary.plan.get("engines")):
        for rank in _mappings(engine.get("ranks")):
            ranks.setdefault(str(rank.get("host")), []).append(
                f"{engine.get('name')} {rank.get('rank')}"
            )
    found = {
        str(host.get("name")): dict(host)
        for host in _mappings(summary.values.get("prepare", {}).get("hosts"))
    }
    for name in ranks:
        found.setdefault(name, {"name": name})
    return [{**host, "ranks": ranks.get(name, [])} for name, host in found.items()]


def _host_names(summary: Summary) -> list[str]:
    return [str(host["name"]) for host in hosts(summary)]


def links(summary: Summary) -> dict[str, Any]:
    """Return what was measured between hosts: the figures by operation, the rows, the picture."""
    values = summary.values.get("links", {})
    operations = [one for name, one in (values.get("across") or {}).items() if name != "latency"]
    pairs = _mappings(values.get("pairs"))
    slow = max((float(one["gbs"]) for one in pairs), default=1.0) < 1
    return {
        "operations": operations,
        "rows": _mappings(values.get("rows")),
        # Drawn of numbers and of names that are escaped.
        "picture": Markup(heat_map(pairs)),  # noqa: S704 see above
        "unit": "MB/s" if slow else "GB/s",
        "scale": 1000 if slow else 1,
    }


def sweep(summary: Summary) -> dict[str, Any]:
    """Return the points of a sweep and their figure; empty where nothing was swept."""
    values = summary.values.get("sweep", {})
    points = _mappings(values.get("points"))
    if not points:
        return {}
    title = f"{values.get('engine', '')}: throughput over max_num_seqs"
    # Drawn of numbers and of names that are escaped.
    return {"rows": sweep_rows(points), "picture": Markup(sweep_figure(title, points))}  # noqa: S704


def versions(summary: Summary) -> dict[str, str]:
    """Return the versions of what is installed, and the fingerprint all hosts share."""
    values = summary.values.get("install", {})
    return {
        name: str(values[name])
        for name in ("vllm", "ray", "torch", "python", "fingerprint")
        if values.get(name)
    }


def failures(summary: Summary) -> list[dict[str, Any]]:
    """Return each failure once, with all the hosts that met it."""
    merged: dict[tuple[str, ...], dict[str, Any]] = {}
    for failure in summary.failures:
        key = tuple(str(failure.get(name)) for name in ("stage", "task", "msg", "found"))
        entry = merged.setdefault(key, {**redact(failure), "hosts": []})
        if failure.get("host") not in entry["hosts"]:
            entry["hosts"].append(failure.get("host"))
    return list(merged.values())


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
