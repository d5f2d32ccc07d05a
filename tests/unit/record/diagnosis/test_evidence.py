"""What gates of a run have found orders the lines of hosts and judges causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.record import events
from vllm_ansible.record.diagnosis import evidence
from vllm_ansible.record.diagnosis.evidence import Evidence
from vllm_ansible.record.diagnosis.hosts import host_of
from vllm_ansible.record.diagnosis.verdict import diagnose

EVENTS: list[dict[str, Any]] = [
    {"event": "run_start"},
    {
        "event": "evidence",
        "gate": "preflight",
        "values": {
            "facts": {
                "gpu-1": {"address": "10.0.0.1", "devices": 8, "cards": ["mlx5_0"], "no": None},
                "gpu-2": {"address": "10.0.0.2", "devices": 0},
            }
        },
    },
    {
        "event": "evidence",
        "gate": "reach",
        "values": {"clock_offset_seconds": {"gpu-1": 0.0, "gpu-2": 90.5}, "blocked": 0},
    },
    {"event": "evidence", "gate": "links", "values": {"facts": {"gpu-1": {"devices": 1}}}},
]
# gpu-2's clock is ahead: by its own time it failed after gpu-1, and in truth a minute before.
AHEAD = {
    "gpu-1 chat-serve": "ERROR 11-20 10:00:40 [x.py:1] ValueError: what followed\n",
    "gpu-2 chat-rank1": "ERROR 11-20 10:01:20 [x.py:1] ValueError: what began\n",
}


def test_events_become_facts_by_host_and_clocks() -> None:
    found = evidence.of_events(EVENTS)
    assert found.facts["gpu-1"]["devices"].value == 8
    assert found.facts["gpu-1"]["cards"].value == ("mlx5_0",)
    assert found.facts["gpu-1"]["devices"].source == "preflight"
    assert "no" not in found.facts["gpu-1"]
    assert found.facts[""]["data_plane_addresses"].value == ("10.0.0.1", "10.0.0.2")
    assert found.facts[""]["blocked_ports"].value == 0
    assert found.clocks == {"gpu-1": 0.0, "gpu-2": 90.5}


def test_the_earliest_line_is_the_cause_by_the_clocks_that_were_measured() -> None:
    assert diagnose("x", AHEAD, {})["found"] == "ValueError: what followed"
    known = evidence.of_events(EVENTS)
    assert diagnose("x", AHEAD, {}, None, known)["found"] == "ValueError: what began"


def test_a_line_that_ray_passed_on_has_the_clock_of_the_host_that_wrote_it() -> None:
    line = "(RayWorker pid=3, ip=10.0.0.2) ERROR 11-20 10:01:20 [x.py:1] ValueError: what began\n"
    head = {"gpu-1 chat-serve": AHEAD["gpu-1 chat-serve"] + line}
    known = evidence.of_events(EVENTS)
    assert diagnose("x", head, {}, None, known)["found"] == "ValueError: what began"
    assert diagnose("x", head, {})["found"] == "ValueError: what followed"


def test_what_lies_beside_logs_is_read(tmp_path: Path) -> None:
    assert evidence.of_directory(tmp_path) == Evidence()
    for event in EVENTS:
        events.append(tmp_path, event)
    (tmp_path / "verify.json").write_text(json.dumps({"clocks": {"gpu-3": 1.5}}))
    (tmp_path / "facts.json").write_text("no JSON at all")
    found = evidence.of_directory(tmp_path)
    assert found.clocks == {"gpu-1": 0.0, "gpu-2": 90.5, "gpu-3": 1.5}
    assert found.facts["gpu-2"]["devices"].value == 0


def test_evidence_is_the_same_when_it_was_written_and_read() -> None:
    found = evidence.of_events(EVENTS)
    written = json.loads(json.dumps(evidence.as_document(found)))
    assert evidence.from_document(written) == found


@pytest.mark.parametrize(
    "document", [{}, {"facts": 3}, {"facts": {"a": {"b": 1}}}, {"clocks": {"a": "x"}}]
)
def test_a_document_of_another_form_says_nothing(document: dict[str, Any]) -> None:
    assert evidence.from_document(document) == Evidence()


@pytest.mark.parametrize(
    ("rank", "known", "expected"),
    [
        ("gpu-1 chat-serve", (), "gpu-1"),
        ("gpu-1/serve.log", (), "gpu-1"),
        ("serve.log", (), "serve"),
        ("gpu-1-chat-serve.log", ("gpu-1", "gpu-10"), "gpu-1"),
        ("gpu-10-chat-serve.log", ("gpu-1", "gpu-10"), "gpu-10"),
        ("logs/gpu-10.log.gz", ("gpu-1", "gpu-10"), "gpu-10"),
        ("gpu-100.log", ("gpu-1", "gpu-10"), "gpu-100"),
    ],
)
def test_the_host_of_a_log(rank: str, known: tuple[str, ...], expected: str) -> None:
    assert host_of(rank, known) == expected
