"""Enflame devices before an engine starts: what is read, and what the vendor's word is worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_ansible.node.accelerators import efml, enflame
from vllm_ansible.node.preflight import enflame_devices
from vllm_ansible.verify.preflight import judge
from vllm_ansible.verify.preflight.check import FAIL, PASS, SKIPPED, WARN, Cluster

from .faults import of, put

Make = Callable[..., Cluster]
DEVICE = (
    "DEV ID {}\n    Temperature Info\n        GCU Temp   : {} C\n    RMA Info\n        DBE : 0\n"
)
BANNER = "| EFSMI: 1.7.2.14          Driver Ver: 1.7.2.14      |\n"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Give what looks at devices of which efsmi tells the given temperatures, look by look."""

    def look(*temperatures: list[int], **holders: Any) -> dict[str, Any]:
        looks = iter(temperatures)

        def ask(*arguments: str) -> str | None:
            if not arguments:
                return BANNER
            degrees = next(looks, None)
            if degrees is None:
                return None
            return "".join(DEVICE.format(*pair) for pair in enumerate(degrees) if pair[1])

        monkeypatch.setattr(enflame, "ask", ask)
        monkeypatch.setattr(enflame_devices, "HOT_SECONDS", 0)
        monkeypatch.setattr(enflame_devices, "holding", lambda root: holders.get("holding", {}))
        monkeypatch.setattr(
            efml, "ecc_errors", lambda numbers: [{"single": one, "double": 3} for one in numbers]
        )
        return enflame_devices.look({7})

    return look


def test_devices_are_read_with_their_errors_and_who_holds_them(told: Any) -> None:
    found = told([40, 41], holding={7: ("vllm", [1]), 9: ("other", [0, 1])})
    assert found["toolkit"]["efsmi"] == "1.7.2.14"
    one, two = found["devices"]
    assert one["ecc_errors"] == {"single": 0, "double": 3}
    assert [(who["pid"], who["ours"]) for who in one["processes"]] == [(9, False)]
    assert [(who["pid"], who["ours"]) for who in two["processes"]] == [(7, True), (9, False)]


def test_errors_are_those_of_the_device_though_one_before_it_is_left_out(told: Any) -> None:
    found = told([40, 0, 41])["devices"]
    assert [(one["index"], one["ecc_errors"]["single"]) for one in found] == [(0, 0), (2, 2)]


def test_a_device_is_hot_only_when_it_stays_hot(told: Any) -> None:
    degrees = [one["temperature"] for one in told([97, 96], [80, 98])["devices"]]
    assert degrees == [80, 96]


def test_a_host_whose_driver_does_not_answer_says_why(told: Any) -> None:
    found = told()
    assert found["devices"] == [] and found["error"] == "the module enflame is not loaded"


def test_the_vendors_word_that_all_is_well_is_not_enough(healthy: Make) -> None:
    made = healthy(2, "enflame")
    (device, _) = made.looks["n2"]["devices"]["devices"]
    device["ecc_errors"]["double"] = 1
    assert device["told_healthy"] is True
    assert of(judge.rows(made), "device_errors").verdict == FAIL


def test_a_request_to_be_replaced_is_told_where_nothing_counts(healthy: Make) -> None:
    made = healthy(2, "enflame")
    for one in made.looks["n2"]["devices"]["devices"]:
        one.update(ecc_errors=None, double_bit_ever=None, replace=True)
    row = of(judge.rows(made), "device_errors")
    assert row.verdict == FAIL and "device 0: asks to be replaced" in row.found


def test_one_device_whose_errors_nobody_counts_is_not_well(healthy: Make) -> None:
    made = healthy(2, "enflame")
    made.looks["n2"]["devices"]["devices"][1].update(ecc_errors=None, double_bit_ever=None)
    row = of(judge.rows(made), "device_errors")
    assert row.verdict == WARN and row.found == "device 1: reports no count of memory errors"


def test_what_is_not_told_is_skipped_and_says_so(healthy: Make) -> None:
    made = healthy(2, "enflame")
    for one in made.looks["n2"]["devices"]["devices"]:
        one.update(ecc_errors=None, double_bit_ever=None, temperature=None, ecc=None)
        one["link"] = dict.fromkeys(one["link"])
        one["memory"] = dict.fromkeys(one["memory"])
    for check in ("device_errors", "device_link", "device_temperature", "device_memory"):
        row = of(judge.rows(made), check)
        assert row.verdict == SKIPPED and row.found, row


def test_a_stranger_is_named_though_its_memory_is_not_told(healthy: Make) -> None:
    made = healthy(2, "enflame")
    stranger = {"pid": 9, "user": "eve", "command": "python3", "bytes": None, "ours": False}
    put("devices.devices.0.processes", [stranger])(made.looks["n2"])
    row = of(judge.rows(made), "device_strangers")
    assert row.verdict == WARN and "process 9 (python3) of eve holds it open" in row.found
    assert of(judge.rows(made), "device_memory").verdict == PASS
