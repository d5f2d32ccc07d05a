"""The gate reads every host's look, tells each failure, and accepts by name; real plays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_ansible.verify.preflight import judge as checks
from vllm_ansible.verify.preflight.gate import verdict


@pytest.fixture(scope="module")
def played(shared_play: Any) -> Any:
    from .conftest import host, look

    hosts = {}
    for number in (1, 2):
        seen = look(number, "cpu")
        del seen["data_plane"]["routes"]["n3"]
        hosts[f"n{number}"] = {"site_host": host(number, "cpu"), "good": {"look": seen}}
        bad = json.loads(json.dumps(seen))
        bad["memory"]["strangers"]["bytes"] = bad["memory"]["total"]
        if number == 2:
            bad["data_plane"]["resolves_to"] = ["127.0.1.1"]
            bad["limits"]["nofile"] = 100
        hosts[f"n{number}"]["bad"] = {"look": bad}

    def gate(name: str, looks: str, **more: Any) -> dict[str, Any]:
        judged = {
            "judge": "preflight",
            "of": {"engines": [{"name": "chat"}], **more},
            "of_each_host": {"looks": looks, "hosts": "site_host"},
        }
        return {"name": name, "gate": judged, "run_once": True}

    return shared_play(
        [
            gate("all is well", "good"),
            gate("much is wrong", "bad"),
            gate("only asked", "bad", fails=False),
            gate("accepted", "bad", accept=["hostname@n2", "nofile"]),
            gate("a slip", "bad", accept=["host_name"]),
            gate("no look", "missing"),
        ],
        hosts=hosts,
    )


def test_it_passes_with_every_row_as_evidence(played: Any) -> None:
    evidence = played["all is well"]["evidence"]
    assert evidence["gate"] == "preflight"
    assert evidence["summary"] == "18 checks on 2 hosts: 18 pass, 25 do not apply"
    row = next(one for one in evidence["values"]["rows"] if one["check"] == "nofile")
    assert set(row) == {"check", "host", "what", "threshold", "found", "verdict", "why", "fix"}
    # A later failure is held against what this host was.
    assert evidence["values"]["facts"]["n2"]["address"] == "10.0.0.2"
    assert evidence["values"]["facts"]["n2"]["memlock"] == "unlimited"


def test_it_fails_with_the_first_and_tells_all(played: Any) -> None:
    failed = played["much is wrong"]
    assert failed["failed"] and failed["where"] == "n2" and failed["check"] == "nofile"
    assert failed["expected"] and failed["found"].startswith("100") and failed["fix"]
    assert [one["check"] for one in failed["missed"]] == ["nofile", "hostname"]
    assert len(failed["msg"].splitlines()) == 2 and "evidence" not in failed


def test_it_can_be_asked_without_failing(played: Any) -> None:
    asked = played["only asked"]
    assert not asked.get("failed") and [one["check"] for one in asked["failing"]] == [
        "nofile",
        "hostname",
    ]


def test_what_is_accepted_passes_and_is_told(played: Any) -> None:
    accepted = played["accepted"]
    assert "2 warnings" not in accepted["evidence"]["summary"]
    assert "1 warning, 2 accepted" in accepted["evidence"]["summary"]
    assert not accepted.get("failed")


def test_warnings_and_what_was_accepted_are_displayed_a_line_each(healthy: Any) -> None:
    made = healthy()
    made.looks["n2"]["system"]["clock_synchronised"] = False
    made.looks["n3"]["limits"]["nofile"] = 1
    rows = checks.accept(checks.rows(made), ["nofile"])
    told = verdict(rows, dict(made.looks), fails=True)["warns"]
    assert [one.partition(":")[2].partition(":")[0].strip() for one in told] == [
        "clock on n2",
        "accepted",
    ]
    assert all("\n" not in one for one in told) and "timesyncd" in told[0]


def test_a_slip_accepts_nothing(played: Any) -> None:
    assert played["a slip"]["failed"] and played["a slip"]["check"] == "nofile"


def test_a_host_without_a_look_is_named(played: Any) -> None:
    assert played["no look"]["failed"] and "lack the fact missing" in played["no look"]["msg"]
