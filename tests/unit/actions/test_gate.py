"""A gate passes on measurements that hold, and on nothing else; real plays."""

from __future__ import annotations

from typing import Any


def measurement(ok: Any, what: str = "free disk space", where: str = "n1") -> dict[str, Any]:
    return {
        "what": what,
        "ok": ok,
        "expected": "8 GiB",
        "found": "1 GiB",
        "where": where,
        "fix": "free some",
    }


def gate(name: str, *measurements: Any, **more: Any) -> dict[str, Any]:
    arguments = {"gate": "host", "summary": "n1 is ready", "measurements": list(measurements)}
    return {"name": name, "gate": {**arguments, "values": {"n1": 1}}, **more}


def test_a_gate_passes_with_evidence_and_fails_with_what_to_do(play: Any) -> None:
    second = measurement(False, "memory", "n2")
    played = play(
        [
            gate("all hold", measurement(True), measurement("{{ 1 < 2 }}")),
            gate("nothing to measure"),
            gate("one fails", measurement(True), measurement(False)),
            gate("two fail", measurement(False), second),
            gate("a template says no", measurement("{{ 1 > 2 }}")),
            gate("text says no", measurement("False")),
            gate("text says nothing", measurement("perhaps")),
            gate("nobody measured", {"what": "memory", "where": "n1"}),
            gate("check mode", measurement(False), check_mode=True),
        ]
    )
    evidence = {"gate": "host", "summary": "n1 is ready", "values": {"n1": 1}}
    for name in ("all hold", "nothing to measure"):
        assert played[name]["evidence"] == evidence and not played[name]["changed"]
    assert played["one fails"]["msg"] == "n1: check failed: free disk space"
    assert played["two fail"]["msg"] == (
        "n1: check failed: free disk space (and 1 more: n2: memory)"
    )
    assert [one["what"] for one in played["two fail"]["missed"]] == ["free disk space", "memory"]
    told = {"expected": "8 GiB", "found": "1 GiB", "where": "n1", "fix": "free some"}
    for name in ("one fails", "a template says no", "text says no", "check mode"):
        assert played[name]["failed"] and played[name] | told == played[name]
        assert "evidence" not in played[name]
    for name in ("text says nothing", "nobody measured"):
        assert played[name]["failed"] and "evidence" not in played[name]
