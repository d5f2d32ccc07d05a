"""What the page of a cluster shows: what Prometheus knows of it, beside what was planned."""

from __future__ import annotations

import base64
import http.client
import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

ANSWER_SECONDS = 10.0
MOST_ALERTS = 50
# Fires always, and is no news.
ALWAYS = "AlertsArrive"
FIRED = f'timestamp(ALERTS{{alertstate="firing",alertname!="{ALWAYS}"}})[1d:1m]'
QUERIES = {
    "up": "up",
    "running": "sum by (engine, rank) (vllm:num_requests_running)",
    "waiting": "sum by (engine, rank) (vllm:num_requests_waiting)",
    "tokens": "sum by (engine, rank) (rate(vllm:generation_tokens_total[1m]))",
    "cache": "max by (engine, rank) (engine:cache_usage:max)",
    "first_token": "max by (engine) (engine:first_token_seconds:p90)",
    "inter_token": "max by (engine) (engine:inter_token_seconds:p90)",
    "first_token_limit": "max by (engine) (vllm_limit_first_token_seconds)",
    "inter_token_limit": "max by (engine) (vllm_limit_inter_token_seconds)",
    "devices": "vllm_devices",
    "utilization": "vllm_device_utilization_ratio",
    "memory_used": "vllm_device_memory_used_bytes",
    "memory": "vllm_device_memory_bytes",
    "temperature": "vllm_device_temperature_celsius",
    "power": "vllm_device_power_watts",
    "unwell": "vllm_device_unwell == 1",
    "throttled": "vllm_device_throttled == 1",
    "spend": "max(cluster:spend_usd)",
    "spend_per_hour": "max(vllm_spend_usd_per_hour)",
    "spend_limit": "max(vllm_spend_limit_usd)",
    "fired_last": f"max_over_time({FIRED})",
}
OF_DEVICE = ("utilization", "memory_used", "memory", "temperature", "power")
STATES = {None: "not watched", 0.0: "no answer", 1.0: "answers"}
Sample = tuple[Mapping[str, str], float]
Answers = Mapping[str, Sequence[Sample]]
Ask = Callable[[str], Any]


def asker(url: str, user: str, key_file: str) -> Ask:
    """Return what asks Prometheus for a path; the key is read each time, since it may change."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path: str) -> Any:
        word = f"{user}:{Path(key_file).read_text(encoding='utf-8').strip()}"
        request = urllib.request.Request(url + path)  # noqa: S310 - of our own Prometheus
        request.add_header("Authorization", f"Basic {base64.b64encode(word.encode()).decode()}")
        with opener.open(request, timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read())["data"]

    return ask


def asked(ask: Ask) -> tuple[dict[str, list[Sample]], list[Mapping[str, Any]]]:
    """Return the samples of each query, without what is no number, and the alerts of now."""
    found = {}
    for name, expression in QUERIES.items():
        result = ask(f"/api/v1/query?query={urllib.parse.quote(expression)}")["result"]
        samples = [(one["metric"], float(one["value"][1])) for one in result]
        found[name] = [one for one in samples if math.isfinite(one[1])]
    return found, ask("/api/v1/alerts")["alerts"]


def value(samples: Iterable[Sample], **labels: Any) -> Optional[float]:
    """Return the value of the first sample with these labels."""
    wanted = {name: str(one) for name, one in labels.items()}
    return next((number for has, number in samples if wanted.items() <= has.items()), None)


def _door(samples: Iterable[Sample]) -> Optional[float]:
    """Return whether a door answers; of several, one is enough for clients."""
    return max((number for has, number in samples if has.get("job") == "door"), default=None)


def _engine(engine: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    """Return an engine of the plan with what is measured of it and of each of its ranks."""
    name = engine["name"]
    ranks = []
    for rank in engine["ranks"]:
        labels = {"engine": name, "rank": rank["rank"]}
        up = value(answers.get("up", ()), job="vllm", **labels)
        ranks.append(
            {
                **rank,
                "state": STATES[up],
                **{
                    # Of one that ended Prometheus still knows the figures of the last minutes.
                    figure: value(answers.get(figure, ()), **labels) if up else None
                    for figure in ("running", "waiting", "tokens", "cache")
                },
            }
        )
    times = ("first_token", "inter_token", "first_token_limit", "inter_token_limit")
    return {
        **engine,
        "ranks": ranks,
        **{one: value(answers.get(one, ()), engine=name) for one in times},
    }


def _host(host: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    """Return a host with how many of its devices answer, and each of those that were seen."""
    name = host["name"]
    seen: dict[str, dict[str, Any]] = {}
    for figure in OF_DEVICE:
        for labels, number in answers.get(figure, ()):
            if labels.get("host") == name:
                one = seen.setdefault(
                    labels["device"], {"device": labels["device"], "name": labels.get("name", "")}
                )
                one[figure] = number
    for device in seen.values():
        for kind in ("unwell", "throttled"):
            device[kind] = sorted(
                labels["reason"]
                for labels, _ in answers.get(kind, ())
                if (labels.get("host"), labels["device"]) == (name, device["device"])
            )
    return {
        **host,
        "state": STATES[value(answers.get("up", ()), job="node", host=name)],
        "answering": value(answers.get("devices", ()), host=name),
        "devices": [seen[one] for one in sorted(seen, key=lambda one: (len(one), one))],
    }


def _alerts(answers: Answers, active: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what fires, then what has fired within a day, the latest first."""
    firing = [
        {
            "name": one["labels"]["alertname"],
            "severity": one["labels"].get("severity", ""),
            "summary": one["annotations"].get("summary", ""),
            "fix": one["annotations"].get("fix", ""),
            "since": one["activeAt"],
            "ended": None,
        }
        for one in active
        if one["state"] == "firing" and one["labels"]["alertname"] != ALWAYS
    ]
    firing.sort(key=lambda one: one["since"], reverse=True)
    now = [set(one["labels"].items()) for one in active if one["state"] == "firing"]
    ended: list[dict[str, Any]] = []
    for labels, last in answers.get("fired_last", ()):
        own = {item for item in labels.items() if item[0] not in ("alertstate", "__name__")}
        if own not in now:
            words = {"alertname", "severity", "cluster", "job", "instance", "alertstate"}
            told = ", ".join(f"{name} {one}" for name, one in labels.items() if name not in words)
            ended.append(
                {
                    "name": labels["alertname"],
                    "severity": labels.get("severity", ""),
                    "summary": told,
                    "fix": "",
                    "since": None,
                    "ended": last,
                }
            )
    ended.sort(key=lambda one: one["ended"], reverse=True)
    return [*firing, *ended][:MOST_ALERTS]


def overview(
    plan: Mapping[str, Any],
    answers: Answers,
    active: Iterable[Mapping[str, Any]],
    now: float,
    problem: str = "",
) -> dict[str, Any]:
    """Return all that the page shows.

    plan: `cluster`, `engines` with their ranks, `hosts` with the devices that engines use. problem:
    why there are no answers.
    """
    spend = value(answers.get("spend", ()))
    return {
        "cluster": plan["cluster"],
        "written": now,
        "problem": problem,
        "engines": [_engine(one, answers) for one in plan["engines"]],
        "hosts": [_host(one, answers) for one in plan["hosts"]],
        "door": STATES[_door(answers.get("up", ()))],
        "alerts": _alerts(answers, list(active)),
        "spend": None
        if spend is None
        else {
            "usd": spend,
            "usd_per_hour": value(answers.get("spend_per_hour", ())),
            "limit_usd": value(answers.get("spend_limit", ())),
        },
    }


def text(settings: Mapping[str, Any], now: float, ask: Optional[Ask] = None) -> str:
    """Return the page's file; one that names the problem where Prometheus does not answer.

    settings: `plan`, `url`, `user` and `key_file`.
    """
    asking = ask or asker(settings["url"], settings["user"], settings["key_file"])
    try:
        answers, active = asked(asking)
        found = overview(settings["plan"], answers, active, now)
    # What does not answer as Prometheus does is none: URLError is an OSError. It may end meanwhile.
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        problem = f"Prometheus does not answer at {settings['url']}: {error}"
        found = overview(settings["plan"], {}, (), now, problem)
    return json.dumps(found, allow_nan=False) + "\n"
