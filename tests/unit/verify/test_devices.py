"""Real figures of an H200 pass; a device that errs, throttles or differs is named."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.verify.devices import judge, summary
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

DATA = Path(__file__).parents[2] / "data"
PROBE = json.loads((DATA / "h200-probe.json").read_text())
TWO_H100 = json.loads((DATA / "h100-probe.json").read_text())
PAIRS = TWO_H100["peers"]["pairs"]


@pytest.fixture
def probes() -> dict[str, Any]:
    return {"gh-01": copy.deepcopy(PROBE), "gh-02": copy.deepcopy(PROBE)}


def failing(probes: dict[str, Any]) -> list[Row]:
    return [row for row in judge(probes) if row.verdict == FAIL]


def test_real_figures_pass(probes: dict[str, Any]) -> None:
    assert {row.verdict for row in judge(probes)} == {PASS}
    assert summary(probes).startswith("2 x NVIDIA H200: median of 351.3 TFLOP/s in bf16")


def test_real_figures_of_two_devices_and_their_link_pass() -> None:
    rows = judge({"h-01": TWO_H100})
    assert {row.verdict for row in rows} == {PASS}
    assert {row.where for row in rows} >= {"h-01:0", "h-01:1"}
    assert summary({"h-01": TWO_H100}).startswith("2 x NVIDIA H100 80GB HBM3: median of 353.4")


@pytest.mark.parametrize(
    ("name", "key", "value", "check"),
    [
        ("memory", "wrong_words", 1, "computes"),
        ("memory", "planted_bit_found", False, "computes"),
        ("matmul_bf16", "wrong_elements", 7, "computes"),
        ("matmul_fp32", "wrong_elements", 7, "computes"),
        ("bandwidth", "exact", False, "computes"),
        ("host_link", "exact", False, "computes"),
        ("bandwidth", "read_gb_per_s", 2400.0, "memory_rate"),
        ("host_link", "to_device_gb_per_s", 6.2, "host_link"),
        ("host_link", "to_host_gb_per_s", 12.1, "host_link"),
        ("matmul_bf16", "tflops", 250.0, "peers"),
        ("matmul_fp32", "tflops", 30.0, "peers"),
    ],
)
def test_each_figure_can_fail(
    probes: dict[str, Any], name: str, key: str, value: Any, check: str
) -> None:
    probes["gh-02"]["devices"][0][name][key] = value
    rows = failing(probes)
    assert check in {row.check for row in rows}
    assert {row.where for row in rows} == {"gh-02:0"}


def test_a_device_that_stops_is_named_with_the_place(probes: dict[str, Any]) -> None:
    broken = probes["gh-01"]["devices"][0]
    broken |= {"error": "error 802: system not yet initialized", "stage": "start"}
    (row,) = failing(probes)
    assert (row.check, row.where) == ("computes", "gh-01:0")
    assert row.found == "error 802: system not yet initialized while start"


@pytest.mark.parametrize(("verdict", "expected"), [("isolate", FAIL), ("watch", WARN)])
def test_the_kernels_log_decides_by_what_it_asks_for(
    probes: dict[str, Any], verdict: str, expected: str
) -> None:
    probes["gh-01"]["kernel_log"] |= {"verdict": verdict, "errors": [{"line": "Xid 79"}]}
    row = next(row for row in judge(probes) if row.check == "kernel_log")
    assert (row.verdict, row.where, row.found) == (expected, "gh-01", "Xid 79")


def test_what_was_not_measured_is_told(probes: dict[str, Any]) -> None:
    probes["gh-01"]["devices"][0]["bandwidth"] = {"skipped": "2 seconds were over"}
    row = next(row for row in judge(probes) if row.check == "memory_rate")
    assert (row.verdict, row.found) == (WARN, "2 seconds were over")


def two(**peers: Any) -> dict[str, Any]:
    return {"h-01": {**copy.deepcopy(TWO_H100), "peers": copy.deepcopy(TWO_H100["peers"]) | peers}}


def copies(probes: dict[str, Any]) -> list[Row]:
    return [row for row in judge(probes) if row.check == "copies"]


def test_copies_that_arrive_changed_name_their_pair() -> None:
    probes = two()
    probes["h-01"]["peers"]["pairs"][1]["wrong_words"] = 5
    (row,) = copies(probes)
    assert (row.verdict, row.where, row.found) == (FAIL, "h-01:1-0", "5 words came changed")


@pytest.mark.parametrize(
    ("peers", "found"),
    [
        (
            {"error": "error 700", "stage": "device 1 to device 0", "pairs": PAIRS[:1]},
            "error 700 at device 1 to device 0; not measured: device 1 to device 0",
        ),
        ({"pairs": PAIRS[1:]}, "not measured: device 0 to device 1"),
        ({"pairs": []}, "not measured: device 0 to device 1; device 1 to device 0"),
    ],
    ids=["failed", "one pair is missing", "no pair"],
)
def test_copies_that_were_not_made_fail(peers: dict[str, Any], found: str) -> None:
    (row,) = copies(two(**peers))
    assert (row.verdict, row.where, row.found) == (FAIL, "h-01", found)


def test_a_probe_without_copies_fails_where_two_devices_compute() -> None:
    probes = two()
    del probes["h-01"]["peers"]
    assert [row.verdict for row in copies(probes)] == [FAIL]
    # A device that fails by itself owes no copies.
    probes["h-01"]["devices"][1] |= {"error": "error 802", "stage": "start"}
    assert copies(probes) == []


def test_copies_for_which_time_was_over_are_a_warning() -> None:
    late = {"source": 1, "target": 0, "skipped": "5 seconds were over"}
    (row,) = copies(two(pairs=[PAIRS[0], late]))
    assert (row.verdict, row.found) == (WARN, "1 of 2 pairs not measured: 5 seconds were over")
