"""What must be true of a cluster that is observed: each target scraped, alerts that arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Fires always: that it arrives proves the way from Prometheus to Alertmanager.
ALWAYS = "AlertsArrive"


def settings(
    host: str,
    hosts: Iterable[Mapping[str, Any]],
    mode: object,
    directory: str,
    *,
    whole: bool = True,
    keyed: bool = True,
) -> list[dict[str, Any]]:
    """Return that the host of Prometheus is of this run, that files have a directory, and the key.

    mode: False, too, as YAML reads an `off` without quotes. whole: whether this run is about all
    hosts. keyed: whether the engines' key is on this controller.
    """
    names = [str(one["name"]) for one in hosts]
    asked = mode in ("run", "files")
    return [
        {
            "what": "the host of Prometheus",
            "ok": not (asked and whole) or host in names,
            "expected": f"one of {', '.join(names)}",
            "found": host,
            "where": "observe_host",
            "fix": "correct observe_host",
        },
        {
            "what": "a directory for targets and rules",
            "ok": mode != "files" or bool(directory),
            "expected": "a directory of the controller, for observe_mode: files",
            "found": directory or "none",
            "where": "observe_directory",
            "fix": "set observe_directory, or observe_mode: run",
        },
        {
            "what": "the engines' key, of which that of the figures is made",
            "ok": keyed or not asked,
            "expected": "a file that is not empty",
            "found": "none on this controller",
            "where": "vllm_api_key_file, by default in the directory state of this clone",
            "fix": "use the clone that started the cluster, or its key; or run the stage prepare",
        },
    ]


def port_measurements(
    held: Iterable[Mapping[str, Any]], running: bool, host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each port that another process holds."""
    return [
        {
            "what": f"port {one['port']} free for the stage observe",
            "ok": running,
            "expected": "no other process listens there",
            "found": f"{one['who']} listens there",
            "where": f"{host}:{one['port']}",
            "fix": "stop that process, or set observe_port and observe_node_port to others",
        }
        for one in held
    ]


def doors(
    asked: Iterable[Mapping[str, Any]], wanted: int, host: str, logs: str
) -> list[dict[str, Any]]:
    """Return that each program answers with this status: 200 to the key, 401 without."""
    return [
        {
            "what": f"status {wanted} with{'out' if wanted == 401 else ''} the key at {one['url']}",
            "ok": one["status"] == wanted,
            "expected": f"status {wanted}",
            "found": one["msg"] if one["status"] < 0 else f"status {one['status']}",
            "where": host,
            "fix": f"read {logs}/{one['item']['process']}.log",
        }
        for one in asked
    ]


def _active(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    data: Mapping[str, Any] = (answer.get("json") or {}).get("data", {})
    found: Sequence[Mapping[str, Any]] = data.get("activeTargets", ())
    return found


def unscraped(answer: Mapping[str, Any]) -> int:
    """Return how many targets have not been scraped with success, at least 1 without an answer."""
    active = _active(answer)
    return sum(one["health"] != "up" for one in active) if active else 1


def arrived(answer: Mapping[str, Any]) -> list[str]:
    """Return the names of the alerts that Alertmanager has."""
    return sorted({str(one["labels"]["alertname"]) for one in answer.get("json") or ()})


def scraped(
    answer: Mapping[str, Any], alerts: Mapping[str, Any], wanted: int, host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each target, one for their number, one for the alerts' way.

    answer: of /api/v1/targets of Prometheus. alerts: of /api/v2/alerts of Alertmanager. wanted: how
    many targets there are to be.
    """
    active = _active(answer)
    found = [
        {
            "what": f"{one['labels']['job']} scraped at {one['scrapeUrl']}",
            "ok": one["health"] == "up",
            "expected": "an answer with metrics",
            "found": "metrics" if one["health"] == "up" else one["lastError"] or one["health"],
            "where": one["labels"].get("host", host),
            "fix": "play playbooks/route.yml, with observe_mode set: figures are shown from then on"
            if one["labels"]["job"] in ("door", "clients")
            else f"see that it runs (playbooks/status.yml), and that {host} reaches this address",
        }
        for one in active
    ]
    names = arrived(alerts)
    return [
        *found,
        {
            "what": "targets of Prometheus",
            "ok": len(active) == wanted,
            "expected": str(wanted),
            "found": str(len(active)) if active else str(answer.get("msg", "no answer")),
            "where": host,
            "fix": "read the log of observe-prometheus",
        },
        {
            "what": f"the alert {ALWAYS}, which always fires, in Alertmanager",
            "ok": ALWAYS in names,
            "expected": ALWAYS,
            "found": ", ".join(names) or str(alerts.get("msg", "no alert")),
            "where": host,
            "fix": "read the logs of observe-prometheus and observe-alertmanager",
        },
    ]


def firing(alerts: Mapping[str, Any]) -> str:
    """Return in words which alerts fire, beside the one that always does."""
    names = [name for name in arrived(alerts) if name != ALWAYS]
    return f"firing: {', '.join(names)}" if names else "no alert fires"
