"""The gates of the stage verify in a real play: real figures pass, and each can fail."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data"
LINKS = json.loads((DATA / "collectives" / "h200-ranks-one-host.json").read_text())
PROBE = json.loads((DATA / "h200-probe.json").read_text())
SITE = {"accelerator_count": 4, "interface": "ens1"}
KEPT = {"summaries": ["337 GB/s"], "measured_at": "2026-11-20T12:00:00+00:00", "rows": []}


def spoilt(found: Any, *path: Any, value: Any) -> Any:
    """Return a copy in which one figure is another."""
    made = copy.deepcopy(found)
    place = made
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return made


SLOW = spoilt(LINKS, "inside", "gh-01", "all_reduce", "busbw", value=217.4)
SLOW_AND_WRONG = spoilt(SLOW, "inside", "gh-01", "all_gather", "wrong", value=3)
WRONG = spoilt(LINKS, "inside", "gh-01", "all_gather", "wrong", value=3)
COLD = {"probe": spoilt(PROBE, "devices", 0, "bandwidth", "read_gb_per_s", value=900.0)}
RUNS = {"processes": {"a": {"engine": "chat", "running": True}}}
# What runs beside it is no engine's.
PAGE = {"engine": "", "running": True}
ENDED = {"processes": {"a": {"engine": "chat", "running": False}, "load-page": PAGE}}
HOSTS = {
    "gh-01": {
        "site_host": SITE,
        "probe": {"probe": PROBE},
        "cold": COLD,
        "none": {"skipped": True},
        "runs": RUNS,
        "ended": ENDED,
    }
}


def once(name: str, action: str, **arguments: Any) -> dict[str, Any]:
    more = {key: arguments.pop(key) for key in ("check_mode",) if key in arguments}
    return {"name": name, action: arguments, "run_once": True, **more}


def links(name: str, found: Any, **more: Any) -> dict[str, Any]:
    run = {key: more.pop(key) for key in ("check_mode",) if key in more}
    of = {"found": found, "backend": "nccl", **more}
    return once(name, "gate", judge="links", of=of, of_each_host={"site": "site_host"}, **run)


def devices(name: str, looks: str) -> dict[str, Any]:
    return once(name, "gate", judge="devices", of_each_host={"looks": looks})


def decision(name: str, **arguments: Any) -> dict[str, Any]:
    return once(name, "verification_decision", kept=KEPT, **arguments)


@pytest.fixture(scope="module")
def played(shared_play: Any) -> Any:
    return shared_play(
        [
            links("right", LINKS),
            links("wrong", WRONG),
            links("accepted", WRONG, accept=["results"]),
            links("accepted elsewhere", WRONG, accept=["results@gh-09"]),
            links("slow at first", SLOW, again=True),
            links("slow and wrong", SLOW_AND_WRONG, again=True),
            links("right now", LINKS, before=SLOW),
            links("slow twice", SLOW, before=SLOW),
            links("unknown library", {}, backend="none"),
            links("not in check mode", {}, check_mode=True),
            devices("sound", "probe"),
            devices("slow memory", "cold"),
            devices("no device", "none"),
            devices("never looked", "other"),
            decision("holds", reason="", looks=""),
            decision("due", reason="it is asked for", looks="ended"),
            decision("serving", reason="it is asked for", looks="runs"),
        ],
        HOSTS,
    )


def test_figures_of_real_devices_pass_and_are_the_evidence(played: Any) -> None:
    found = played["right"]
    assert not found.get("failed")
    assert found["evidence"]["summary"] == "inside gh-01 336.7 GB/s"
    assert {row["verdict"] for row in found["rows"]} == {"pass"}
    assert found["links"]["ranks"] == 4


def test_a_wrong_element_fails_and_leaves_its_figures(played: Any) -> None:
    found = played["wrong"]
    assert found["failed"]
    assert found["found"] == "3 in all_gather inside gh-01"
    assert found["missed"]
    assert found["evidence"]["values"]["inside"]["gh-01"]["all_gather"]["wrong"] == 3


def test_a_check_is_accepted_by_name_and_at_its_place_only(played: Any) -> None:
    assert not played["accepted"].get("failed")
    assert "accepted" in {row["verdict"] for row in played["accepted"]["rows"]}
    assert played["accepted elsewhere"]["failed"]


def test_a_low_rate_fails_only_in_a_second_measurement(played: Any) -> None:
    first = played["slow at first"]
    assert (first.get("failed", False), first["again"]) == (False, True)
    assert first["links"]["inside"]["gh-01"]["all_reduce"]["busbw"] == 217.4
    assert not played["right"]["again"]
    twice = played["slow twice"]
    assert twice["failed"]
    assert "217.4 GB/s" in twice["found"]
    assert twice["found"].endswith("; the first measurement: 217.4 GB/s of bus bandwidth")


def test_a_rate_that_was_low_at_first_is_a_warning_with_both_figures(played: Any) -> None:
    found = played["right now"]
    assert not found.get("failed")
    (row,) = [row for row in found["rows"] if row["check"] == "bandwidth"]
    assert row["verdict"] == "warn"
    assert row["found"] == (
        "336.7 GB/s of bus bandwidth; the first measurement: 217.4 GB/s of bus bandwidth"
    )


def test_a_wrong_result_is_not_measured_again(played: Any) -> None:
    assert played["slow and wrong"]["failed"]


def test_what_is_not_measured_says_so(played: Any) -> None:
    assert "no library for none accelerators" in played["unknown library"]["evidence"]["summary"]
    assert played["not in check mode"]["skip_reason"] == "check mode loads no link"


def test_devices_are_judged_by_their_figures(played: Any) -> None:
    assert not played["sound"].get("failed")
    assert played["slow memory"]["failed"]
    assert played["slow memory"]["where"] == "gh-01:0"
    assert played["no device"]["evidence"]["summary"].startswith(
        "no accelerator that can be probed"
    )
    assert played["never looked"]["failed"]


def test_links_are_measured_when_due_and_nothing_serves(played: Any) -> None:
    assert not played["holds"]["measures"]
    assert played["holds"]["evidence"]["summary"].startswith("337 GB/s; measured 2026-11-20")
    assert played["due"]["measures"]
    assert not played["serving"]["measures"]
    assert "chat runs on them" in played["serving"]["evidence"]["summary"]
