"""Whether a rented machine is fit: it answers, and its accelerators are what its type has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PROBE = json.loads((ROOT / "tests/data/h200-probe.json").read_text())
STAND_IN = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"seconds": {"type": "float"}, "bytes": {"type": "int"}})
module.exit_json(probe=%r)
"""


def spoilt() -> dict[str, Any]:
    """Return what a device did that computes wrong now and then."""
    probe: dict[str, Any] = json.loads(json.dumps(PROBE))
    probe["devices"][0]["matmul_fp32"]["wrong_elements"] = 3
    return probe


def library(directory: Path, probe: dict[str, Any]) -> dict[str, str]:
    """Put a module in the probe's place that says what a device did."""
    directory.mkdir()
    (directory / "accelerator_probe.py").write_text(STAND_IN % probe)
    return {"ANSIBLE_LIBRARY": f"{directory}:{ROOT / 'library'}"}


def accept(**more: Any) -> dict[str, Any]:
    return {"name": "look", "accept_machine": {"patience_seconds": 0, **more}}


def test_one_that_answers_and_computes_is_accepted(play: Any, tmp_path: Path) -> None:
    played = play(
        [accept(), {**accept(), "name": "check", "check_mode": True}],
        {
            "one": {"accelerator_count": 1},
            "two": {"accelerator_count": 2},
            "cpu": {"accelerator": "cpu"},
        },
        library(tmp_path / "library", PROBE),
    )
    found = played.tasks["look"]
    assert (found["one"]["accepted"], found["one"]["changed"]) == (True, False)
    assert found["one"]["told"]
    assert not found["two"]["accepted"]
    assert found["two"]["reason"] == "1 accelerators, 2 are expected of its type"
    assert (found["cpu"]["accepted"], found["cpu"]["told"]) == (True, "answers")
    assert found["two"].get("failed") is not True
    assert "accepted" not in played.tasks["check"]["one"]


def test_one_that_computes_wrong_is_not(play: Any, tmp_path: Path) -> None:
    look = play([accept()], {"one": {}}, library(tmp_path / "library", spoilt()))["look"]
    assert not look["accepted"]
    assert "expected" in look["reason"]


def test_one_that_does_not_answer_is_not(play: Any) -> None:
    nowhere = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    look = play([accept()], {"one": {**nowhere, "accelerator": "cpu"}})["look"]
    assert not look["accepted"]
    assert look["reason"].startswith("no answer over SSH for 0 s: ")
    assert "refused" in look["reason"]
