"""Links are measured when they have to be, never under load, and the evidence says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.verify.accepted import accepted
from vllm_ansible.verify.due import decide, fingerprint, reason
from vllm_ansible.verify.kept import kept
from vllm_ansible.verify.metrics import textfile

from .conftest import operations

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOST: dict[str, Any] = {
    "name": "gh-01",
    "address": "10.0.0.1",
    "interface": "ens1",
    "accelerator": "nvidia",
    "accelerator_count": 1,
    "boot_id": "b",
    "accelerators": {"driver_version": "580.1"},
}


def verdict(busbw: float = 1.0, **more: Any) -> dict[str, Any]:
    links = {"hosts": {"gh-01": 1}, "across": operations(busbw), "inside": {}}
    rows = [{"check": "links", "where": "all hosts", "verdict": "pass"}]
    gate = {"gate": "links", "summary": f"{busbw} GB/s", "values": {}}
    return {"links": links, "rows": rows, "evidence": gate, **more}


def test_evidence_holds_until_something_changes() -> None:
    wanted = fingerprint([HOST], "e", {})
    good = {"accepted": True, "fingerprint": wanted, "measured_at": NOW.isoformat()}
    assert reason(good, wanted, NOW + timedelta(hours=1), 168) == ""
    assert reason({}, wanted, NOW, 168) == "they were never measured"
    assert "not accepted" in reason({**good, "accepted": False}, wanted, NOW, 168)
    assert "8 days old" in reason(good, wanted, NOW + timedelta(days=8), 168)


@pytest.mark.parametrize("name", ["boot_id", "address", "interface", "accelerator_count"])
def test_another_host_is_measured_again(name: str) -> None:
    wanted = fingerprint([HOST], "e", {})
    assert fingerprint([{**HOST, name: "other"}], "e", {}) != wanted
    assert fingerprint([HOST], "f", {}) != wanted
    # What a later release asks beside counts where it says something.
    assert fingerprint([HOST], "e", {"fabrics": [{}, {}]}) == wanted
    assert fingerprint([HOST], "e", {"fabrics": [{}, {"a": "b"}]}) != wanted
    assert fingerprint([{**HOST, "accelerators": {"driver_version": "590"}}], "e", {}) != wanted


def test_links_that_serve_are_never_loaded() -> None:
    before = kept("f", {}, [verdict()], NOW)
    decision = decide("the evidence is 8 days old", before, ["chat"])
    assert not decision.measures
    assert "chat runs on them" in decision.warning
    assert decision.summary.endswith("1.0 GB/s; measured 2026-11-20T12:00:00+00:00")
    assert decide("the evidence is 8 days old", before, []).measures
    assert not decide("", before, []).measures


def test_a_failed_run_is_kept_as_such_beside_the_last_good_figures() -> None:
    good = kept("f", {}, [verdict(1.0)], NOW)
    bad = kept("f", good, [verdict(0.2, failed=True)], NOW)
    assert good["accepted"]
    assert not bad["accepted"]
    assert bad["baseline"] == good["links"] == bad["links"]
    assert bad["rejected"]["across"]["all_reduce"]["busbw"] == 0.2
    assert not kept("f", good, [verdict(), {}], NOW)["accepted"], "a gate that never ran"


def test_a_low_rate_whose_second_measurement_never_came_is_not_accepted() -> None:
    good = kept("f", {}, [verdict(1.0)], NOW)
    cut = kept("f", good, [verdict(0.2, again=True)], NOW)
    assert not cut["accepted"]
    assert cut["baseline"] == good["baseline"]
    assert kept("f", good, [verdict(0.9, again=False)], NOW)["accepted"]


def test_a_link_that_fades_is_compared_with_its_best_day() -> None:
    first = kept("f", {}, [verdict(1.0)], NOW)
    second = kept("f", first, [verdict(0.9)], NOW)
    assert second["baseline"]["across"]["all_reduce"]["busbw"] == 1.0
    assert second["links"]["across"]["all_reduce"]["busbw"] == 0.9
    better = kept("f", second, [verdict(1.2)], NOW)
    assert better["baseline"]["across"]["all_reduce"]["busbw"] == 1.2


def test_metrics_are_what_prometheus_reads() -> None:
    rows = [{"check": 'a"b', "where": "gh\\1", "verdict": "fail"}]
    links = {
        "across": {"all_reduce": {"busbw": 44.8}},
        "pairs": [{"first": "gh-01", "second": "gh-02", "gbs": 43.9}],
        "retransmitted": {"gh-01": 0.0},
    }
    text = textfile("r1", False, 1.0, rows, links)
    assert 'vllm_verify_check{cluster="r1",check="a\\"b",where="gh\\\\1"} 0\n' in text
    assert 'vllm_verify_accepted{cluster="r1"} 0\n' in text
    assert 'bytes_per_second{cluster="r1",operation="all_reduce"} 4.48e+10\n' in text
    assert text.count("# TYPE") == 6


def test_only_checks_that_exist_can_be_accepted() -> None:
    names = ["links@gh-07", "reach_ports", "hostname", "bandwidth@all hosts"]
    assert accepted(names) == names
    with pytest.raises(PlanError, match="did you mean bandwidth"):
        accepted(["bandwith@gh-07"])


def test_the_clocks_that_were_measured_are_kept_until_they_are_measured_again() -> None:
    values = {"clock_offset_seconds": {"gh-01": 2.5}}
    reach = {"evidence": {"gate": "reach", "summary": "3 hosts", "values": values}}
    first = kept("f", {}, [reach, verdict()], NOW)
    assert first["clocks"] == {"gh-01": 2.5}
    assert kept("f", first, [{}, verdict()], NOW)["clocks"] == {"gh-01": 2.5}
    failed = {"failed": True, "values": {"clock_offset_seconds": {"gh-01": 90.0}}}
    assert kept("f", first, [failed], NOW)["clocks"] == {"gh-01": 90.0}
