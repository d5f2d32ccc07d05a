"""A cluster as the stage observe writes it for the page: one rank of two does not answer."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

from vllm_ansible.node.observe import overview

PLAN: dict[str, Any] = {
    "cluster": "r1",
    "engines": [
        {
            "name": "chat",
            "model": "model-chat",
            "layout": "DP2 TP1",
            "hosts": ["gh-01", "gh-02"],
            "ranks": [{"rank": 0, "host": "gh-01"}, {"rank": 1, "host": "gh-02"}],
        }
    ],
    "hosts": [
        {"name": "gh-01", "accelerator": "nvidia", "in_use": [0]},
        {"name": "gh-02", "accelerator": "nvidia", "in_use": [0]},
    ],
}
DEVICE = {"device": "0", "name": "NVIDIA H100", "serial": "GPU-1"}
SAMPLES: dict[str, list[tuple[dict[str, str], str]]] = {
    "up": [
        ({"job": "vllm", "engine": "chat", "rank": "0"}, "1"),
        ({"job": "vllm", "engine": "chat", "rank": "1"}, "0"),
        ({"job": "node", "host": "gh-01"}, "1"),
        ({"job": "node", "host": "gh-02"}, "1"),
        ({"job": "door"}, "1"),
    ],
    overview.QUERIES["running"]: [({"engine": "chat", "rank": "0"}, "3")],
    overview.QUERIES["tokens"]: [({"engine": "chat", "rank": "0"}, "412.55")],
    overview.QUERIES["cache"]: [({"engine": "chat", "rank": "0"}, "0.97")],
    overview.QUERIES["inter_token"]: [({"engine": "chat"}, "0.05")],
    overview.QUERIES["inter_token_limit"]: [({"engine": "chat"}, "0.04")],
    "vllm_devices": [({"host": "gh-01"}, "1"), ({"host": "gh-02"}, "0")],
    "vllm_device_memory_used_bytes": [({**DEVICE, "host": "gh-01"}, str(70 << 30))],
    "vllm_device_memory_bytes": [({**DEVICE, "host": "gh-01"}, str(80 << 30))],
    "vllm_device_temperature_celsius": [({**DEVICE, "host": "gh-01"}, "61")],
    "vllm_device_unwell == 1": [({**DEVICE, "host": "gh-01", "reason": "link"}, "1")],
    "max(cluster:spend_usd)": [({}, "41.5")],
    "max(vllm_spend_usd_per_hour)": [({}, "12")],
    overview.QUERIES["fired_last"]: [({"alertname": "HostGone", "host": "gh-02"}, "1795000000")],
}
ALERTS = [
    {
        "labels": {"alertname": "EngineDown", "severity": "critical", "engine": "chat"},
        "state": "firing",
        "activeAt": "2026-11-26T06:00:00Z",
        "annotations": {
            # As a model that somebody else named might have it.
            "summary": "engine <img src=x onerror=alert(1)> does not answer",
            "fix": "run playbooks/status.yml",
        },
    }
]


def prometheus(path: str) -> Any:
    """Answer as Prometheus does."""
    if path == "/api/v1/alerts":
        return {"alerts": ALERTS}
    asked = urllib.parse.unquote(path.partition("query=")[2])
    samples = SAMPLES.get(asked, ())
    return {"result": [{"metric": labels, "value": [0, one]} for labels, one in samples]}


def cluster(now: float) -> dict[str, Any]:
    """Return what the page gets."""
    settings = {"plan": PLAN, "url": "http://127.0.0.1", "user": "observe", "key_file": ""}
    found: dict[str, Any] = json.loads(overview.text(settings, now, prometheus))
    assert not found["problem"], found["problem"]
    return found


CLUSTER = cluster(1795000100.0)
