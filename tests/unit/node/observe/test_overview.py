"""What the page of a cluster is made of, from answers as Prometheus gives them."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
from collections.abc import Callable
from typing import Any

from vllm_ansible.node.observe import overview

PLAN = {
    "cluster": "r1",
    "engines": [
        {
            "name": "chat",
            "model": "m",
            "layout": "DP2 TP1",
            "hosts": ["a", "b"],
            "ranks": [{"rank": 0, "host": "a"}, {"rank": 1, "host": "b"}],
        }
    ],
    "hosts": [
        {"name": "a", "accelerator": "nvidia", "in_use": [0]},
        {"name": "b", "accelerator": "nvidia", "in_use": [10]},
    ],
}
ENGINE = {"cluster": "r1", "engine": "chat"}
DEVICE = {"cluster": "r1", "host": "b", "device": "10", "name": "H100", "serial": "GPU-x"}
FIRES = {"alertname": "EngineDown", "severity": "critical", **ENGINE, "rank": "1"}
# By the beginning of what is asked.
SAMPLES: dict[str, list[tuple[dict[str, str], str]]] = {
    "up": [
        ({"job": "vllm", **ENGINE, "rank": "0"}, "1"),
        ({"job": "vllm", **ENGINE, "rank": "1"}, "0"),
        ({"job": "node", "host": "a"}, "1"),
        ({"job": "door"}, "1"),
    ],
    "sum by (engine, rank) (vllm:num_requests_running)": [
        ({"engine": "chat", "rank": "0"}, "3"),
        ({"engine": "chat", "rank": "1"}, "7"),
    ],
    # Of an engine without a request in five minutes there is no quantile.
    "max by (engine) (engine:first_token_seconds:p90)": [({"engine": "chat"}, "NaN")],
    "max by (engine) (engine:inter_token_seconds:p90)": [({"engine": "chat"}, "0.05")],
    "max by (engine) (vllm_limit_inter_token_seconds)": [({"engine": "chat"}, "0.04")],
    "vllm_devices": [({"host": "b"}, "7")],
    "vllm_device_temperature_celsius": [(DEVICE, "81"), ({**DEVICE, "device": "2"}, "60")],
    "vllm_device_unwell == 1": [({**DEVICE, "reason": "link"}, "1")],
    "max(cluster:spend_usd)": [({}, "41.5")],
    "max(vllm_spend_usd_per_hour)": [({}, "12")],
    "max_over_time(": [
        ({**FIRES, "alertstate": "firing"}, "900"),
        ({"alertname": "HostGone", "severity": "critical", "host": "b"}, "800"),
        ({"alertname": "DoorDown", "severity": "critical", "job": "door"}, "850"),
    ],
}
ALERTS = [
    {"labels": {"alertname": "AlertsArrive"}, "state": "firing"},
    {"labels": {"alertname": "HostGone", "host": "a"}, "state": "pending"},
    {
        "labels": FIRES,
        "state": "firing",
        "activeAt": "2026-11-26T06:00:00Z",
        "annotations": {"summary": "engine chat, rank 1 does not answer", "fix": "look"},
    },
]


def prometheus(samples: dict[str, Any]) -> Callable[[str], Any]:
    def ask(path: str) -> Any:
        if path == "/api/v1/alerts":
            return {"alerts": ALERTS}
        asked = urllib.parse.unquote(path.partition("query=")[2])
        found = [one for begin, all in samples.items() if asked.startswith(begin) for one in all]
        if asked not in samples and not asked.startswith("max_over_time("):
            found = []
        return {"result": [{"metric": labels, "value": [0, number]} for labels, number in found]}

    return ask


def page(ask: Callable[[str], Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        overview.text({"plan": PLAN, "url": "http://p", "user": "u", "key_file": "k"}, 1000.0, ask)
    )
    return found


def test_ranks_states_and_limits_are_those_that_prometheus_knows() -> None:
    found = page(prometheus(SAMPLES))
    assert (found["cluster"], found["written"], found["problem"]) == ("r1", 1000.0, "")
    (engine,) = found["engines"]
    first, second = engine["ranks"]
    assert (first["state"], first["running"], first["waiting"]) == ("answers", 3, None)
    # Figures of a rank that ended are of a time when it still ran.
    assert (second["state"], second["running"], second["host"]) == ("no answer", None, "b")
    assert (engine["first_token"], engine["first_token_limit"]) == (None, None)
    assert (engine["inter_token"], engine["inter_token_limit"]) == (0.05, 0.04)
    assert found["door"] == "answers"
    assert found["spend"] == {"usd": 41.5, "usd_per_hour": 12, "limit_usd": None}


def test_devices_are_listed_in_their_order_with_what_is_wrong() -> None:
    a, b = page(prometheus(SAMPLES))["hosts"]
    assert (a["state"], a["answering"], a["devices"]) == ("answers", None, [])
    assert (b["state"], b["answering"], b["in_use"]) == ("not watched", 7, [10])
    assert [(one["device"], one["temperature"], one["unwell"]) for one in b["devices"]] == [
        ("2", 60, []),
        ("10", 81, ["link"]),
    ]


def test_alerts_that_fire_come_first_then_those_that_ended_the_latest_first() -> None:
    found = page(prometheus(SAMPLES))["alerts"]
    assert [(one["name"], one["since"], one["ended"]) for one in found] == [
        ("EngineDown", "2026-11-26T06:00:00Z", None),
        ("DoorDown", None, 850),
        ("HostGone", None, 800),
    ]
    assert [one["summary"] for one in found[::2]] == [
        "engine chat, rank 1 does not answer",
        "host b",
    ]


def test_a_prometheus_that_does_not_answer_is_named_beside_the_plan() -> None:
    def gone(path: str) -> Any:
        raise urllib.error.URLError("refused")

    def broken_off(path: str) -> Any:
        raise http.client.IncompleteRead(b"")

    for ask in (gone, broken_off, lambda path: {}):
        found = page(ask)
        assert found["problem"].startswith("Prometheus does not answer at http://p: ")
        assert [one["state"] for one in found["engines"][0]["ranks"]] == ["not watched"] * 2
        assert (found["alerts"], found["spend"]) == ([], None)


def test_a_key_that_is_not_there_yet_is_named(tmp_path: Any) -> None:
    """The stage starts what asks before it writes the key."""
    settings = {"plan": PLAN, "url": "http://127.0.0.1:9", "user": "u"}
    found = json.loads(overview.text({**settings, "key_file": str(tmp_path / "key")}, 1.0))
    assert "No such file" in found["problem"]
