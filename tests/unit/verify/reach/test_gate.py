"""The gate in real plays: it passes with evidence, and fails with every finding."""

from __future__ import annotations

from typing import Any

ENGINES = [{"name": "chat", "model": "package:smollm2-135m-instruct"}]
GATE = {"engines": ENGINES, "port_base": 20000}
MEASURED = {"begin": "__reach_responder", "probes": "__reach_probe", "end": "__reach_end"}
ADDRESSES = {"n1": "10.0.0.1", "n2": "10.0.0.2"}


def hosts(blocked: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Return two hosts as the role leaves them; n1 cannot connect to what is blocked."""
    loss = {"sent": 400, "arrived": 400, "returned": 400, "dropped_there": 0, "dropped_here": 0}
    found = {}
    for name, address in ADDRESSES.items():
        (peer,) = set(ADDRESSES) - {name}
        probe = {
            "blocked": (blocked or {}) if name == "n1" else {},
            "source": address,
            "round_trip_us": 80.0,
            "round_trip_best_us": 70.0,
            "clock_offset_seconds": 0.2 if name == "n1" else -0.2,
            "clock_uncertainty_seconds": 0.001,
            "loss": loss,
        }
        responder = {
            "address": address,
            "ports": [[8000, 8000], [20000, 20011], [20020, 20099], [41000, 41000]],
            "answers": [41000],
            "own": [],
            "strangers": [],
            "left": [],
            "kernel": [41000],
        }
        found[name] = {
            "__reach_responder": {"responder": responder},
            "__reach_probe": {"peers": {peer: probe}},
            "__reach_end": {"answered": True},
        }
    return found


def gate(name: str, of: dict[str, Any] = GATE, **more: Any) -> dict[str, Any]:
    judged = {"judge": "reach", "of": of, "of_each_host": MEASURED}
    return {"name": name, "gate": judged, "run_once": True, **more}


def test_two_hosts_that_reach_each_other_pass_with_a_warning_of_their_clocks(play: Any) -> None:
    played = play([gate("judge"), gate("look", check_mode=True)], hosts())
    evidence = played["judge"]["evidence"]
    assert evidence["gate"] == "reach" and not played["judge"]["changed"]
    assert evidence["summary"].startswith(
        "2 hosts reach each other on every port (188 connections)"
    )
    (noted,) = evidence["values"]["noted"]
    assert "is off by +0.200 s" in noted and noted.endswith("(warn)")
    verdicts = {row["check"]: row["verdict"] for row in played["judge"]["rows"]}
    assert verdicts["reach_clocks"] == "warn" and verdicts["reach_ports"] == "pass"
    # Check mode starts nothing on hosts, and does not pass for a measurement.
    assert played["look"]["skipped"] and "evidence" not in played["look"]


def test_a_blocked_port_fails_with_what_a_person_needs(play: Any) -> None:
    blocked = {"timed_out": [[20003, 20003]], "refused": [[8000, 8000]]}
    result = play([gate("judge")], hosts(blocked))["judge"]
    assert result["failed"] and "evidence" not in result
    assert result["msg"] == "n1 does not reach ports 8000, 20003 of n2"
    assert result["where"] == "n1 -> n2"
    assert result["found"].startswith("from n1 (10.0.0.1) to n2 (10.0.0.2): ")
    assert "Ray node manager of engine chat" in result["expected"]
    assert result["fix"].startswith("on n2: ")
    assert [(one["check"], one["ok"]) for one in result["missed"]] == [("reach_ports", False)]
    assert result["values"]["blocked"] == 2


def test_what_is_accepted_by_name_passes_and_is_noted(play: Any) -> None:
    tasks = [
        gate(name, {**GATE, "accept": [name]})
        for name in ("reach_ports", "reach_ports@n1 -> n2", "reach_ports@n2 -> n1", "reach_loss")
    ]
    played = play(tasks, hosts({"timed_out": [[20003, 20003]]}))
    for name in ("reach_ports", "reach_ports@n1 -> n2"):
        noted = played[name]["evidence"]["values"]["noted"]
        assert "n1 does not reach ports 20003 of n2 (accepted)" in noted
    for name in ("reach_ports@n2 -> n1", "reach_loss"):
        assert played[name]["failed"]


def test_one_host_has_nobody_to_reach_and_says_so(play: Any) -> None:
    evidence = play([gate("judge")], {"n1": {}})["judge"]["evidence"]
    assert evidence["summary"] == "one host: there is no other to reach"


def test_hosts_that_nobody_measured_do_not_pass(play: Any) -> None:
    found = hosts()
    del found["n2"]["__reach_probe"]
    result = play([gate("judge")], found)["judge"]
    assert result["failed"] and "n2 lack the fact __reach_probe" in result["msg"]


def test_a_wrong_list_of_engines_is_told_and_not_a_traceback(play: Any) -> None:
    result = play([gate("judge", {**GATE, "engines": []})], hosts())["judge"]
    assert result["failed"] and "engines names no engine" in result["msg"]


def test_the_filter_returns_every_planned_port(play: Any) -> None:
    expression = "{{ engines | reach_ports(20000, {}) }}"
    task = {"name": "ports", "ansible.builtin.set_fact": {"ports": expression}}
    played = play([task], {"n1": {"engines": ENGINES}})
    ports = played["ports"]["ansible_facts"]["ports"]
    own = [20012, 20013, 20014]
    assert ports == [[8000, *range(20000, 20012), *range(20020, 20100)], own]
