"""What is scraped, and beside which limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.observe import facts, seen
from vllm_ansible.observe.targets import targets

ROOT = Path(__file__).parents[3]
HOSTS = [
    {"name": "a", "address": "10.0.0.1", "accelerator": "nvidia"},
    {"name": "b", "address": "10.0.0.2", "accelerator": "nvidia"},
]
BAND = {
    "concurrency": 32,
    "output_tokens_per_second": [800.0, 1000.0, 1200.0],
    "last_first_token_seconds": 1.5,
}
WITHOUT = {"last_first_token_seconds": None}


def engine(name: str = "chat", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served_name": name,
        "hosts": ["a", "b"],
        "executor": "ray",
        "layout": {"data": 1, "tensor": 1, "pipeline": 2},
        "ranks": [{"host": "a", "device": 0}, {"host": "b", "device": 0}],
        "ports": {"api": 8000, "worker_first": 26020, "metrics": 26008},
        "probe": {},
        **more,
    }


def scraped(*engines: dict[str, Any], **processes: Any) -> set[tuple[str, str]]:
    found = targets("r1", engines, HOSTS, processes, 9702, ["10.0.0.1:9443"])
    assert all(one["labels"]["cluster"] == "r1" for one in found)
    return {(one["labels"]["job"], one["targets"][0]) for one in found}


ALWAYS = {
    ("node", "10.0.0.1:9702"),
    ("node", "10.0.0.2:9702"),
    ("door", "10.0.0.1:9443"),
    ("clients", "10.0.0.1:9443"),
}


def test_an_engine_over_hosts_has_one_server_and_a_ray_node_on_each() -> None:
    wanted = {("vllm", "10.0.0.1:8000"), ("ray", "10.0.0.1:26008"), ("ray", "10.0.0.2:26008")}
    assert scraped(engine()) == ALWAYS | wanted


def test_each_data_rank_is_a_target_and_its_router_where_it_is_recorded() -> None:
    one = engine(executor="dp", layout={"data": 2, "tensor": 1, "pipeline": 1})
    ranks = {("vllm", "10.0.0.1:26020"), ("vllm", "10.0.0.2:26021")}
    assert scraped(one) == ALWAYS | ranks
    assert scraped(one, a={"chat-router": {}}) == ALWAYS | ranks | {("router", "10.0.0.1:8000")}


def test_ranks_behind_dynamo_answer_on_loopback_and_are_no_targets() -> None:
    one = engine(executor="dp", layout={"data": 2, "tensor": 1, "pipeline": 1}, front="dynamo")
    assert scraped(one) == ALWAYS


def test_a_host_that_a_run_leaves_out_is_not_scraped() -> None:
    found = targets("r1", [engine()], HOSTS[:1], {}, 9702, [])
    assert {one["targets"][0] for one in found} == {
        "10.0.0.1:8000",
        "10.0.0.1:26008",
        "10.0.0.1:9702",
    }


@pytest.mark.parametrize(
    ("estimate", "given", "limits"),
    [
        (BAND, (0.0, 0.0), [3.0, 0.08]),
        (BAND, (0.0, 0.2), [3.0, 0.2]),
        (BAND, (1.0, 0.0), [1.0, 0.08]),
        ({}, (4.0, 0.2), [4.0, 0.2]),
        # Of an engine that was planned by an earlier release.
        ({**BAND, **WITHOUT}, (0.0, 0.0), [0.08]),
        ({}, (0.0, 0.2), [0.2]),
        ({}, (0.0, 0.0), []),
    ],
)
def test_limits_are_the_given_ones_or_twice_what_was_planned_or_none(
    estimate: dict[str, Any], given: tuple[float, float], limits: list[float]
) -> None:
    """32 sequences at 800 tokens/s have a token each 40 ms."""
    found = facts.of_engines([engine(estimate=estimate)], *given)
    assert [one["value"] for one in found] == limits
    names = list(facts.LIMITS)
    assert [one["name"] for one in found] == names[len(names) - len(limits) :]


def test_engines_without_a_limit_are_named_with_what_it_would_be_of() -> None:
    engines = [engine(estimate=BAND), engine("cpu"), engine("old", estimate={**BAND, **WITHOUT})]
    words = "no planned limit, so no alert: cpu (TTFT and ITL), old (TTFT)"
    assert facts.unlimited(engines, 0, 0) == words
    assert facts.unlimited(engines, 5, 0) == "no planned limit, so no alert: cpu (ITL)"
    assert facts.unlimited(engines, 5, 1) == ""


def test_a_page_has_each_server_and_the_devices_that_engines_use() -> None:
    ranks = [{"host": "a", "device": 3}, {"host": "b", "device": 1}]
    one = engine(
        executor="dp", layout={"data": 2, "tensor": 1, "pipeline": 1}, front="dynamo", ranks=ranks
    )
    found = facts.of_page([one], "r1", [*HOSTS, {"name": "c", "accelerator": "cpu"}])
    (shown,) = found["engines"]
    assert shown["layout"] == "DP2 TP1"
    assert shown["ranks"] == [{"rank": 0, "host": "a"}, {"rank": 1, "host": "b"}]
    assert [host["in_use"] for host in found["hosts"]] == [[3], [1], []]


def test_devices_are_counted_once_and_a_processor_is_none() -> None:
    two = [engine(), engine("other")]
    (found,) = facts.of_host(two, HOSTS[0], {})
    assert (found["name"], found["value"]) == ("vllm_planned_devices", 1.0)
    assert facts.of_host(two, {"name": "a", "accelerator": "cpu"}, {}) == []
    (end,) = facts.of_host([], HOSTS[0], {"ends_at": 1795373996})
    assert (end["name"], end["value"]) == ("vllm_machine_end_timestamp_seconds", 1795373996.0)


def test_spend_is_what_the_ledger_says_at_every_later_time(tmp_path: Path) -> None:
    assert facts.of_spend(tmp_path, 100) == []
    entry = {"slot": 0, "type": "h100", "cents_per_hour": 300, "ours": True}
    entries = {
        "gone": {**entry, "since": 0, "until": 7200},
        "one": {**entry, "since": 3600, "until": None},
        "two": {**entry, "cents_per_hour": 600, "since": 7200, "until": None},
    }
    (tmp_path / "lambda-ledger.json").write_text(json.dumps(entries))
    ledger = facts.Ledger(tmp_path / "lambda-ledger.json")
    found = {one["name"]: one["value"] for one in facts.of_spend(tmp_path, 100)}
    assert found["vllm_spend_limit_usd"] == 100
    for now in (10000, 36000):
        hours = (now - found["vllm_spend_since_timestamp_seconds"]) / 3600
        usd = found["vllm_spend_ended_usd"] + found["vllm_spend_usd_per_hour"] * hours
        assert usd == pytest.approx(ledger.cents(now) / 100, abs=0.01)
    assert [one["name"] for one in facts.of_spend(tmp_path, 0)] == list(found)[:3]


def answer(*healths: str) -> dict[str, Any]:
    active = [
        {
            "labels": {"job": "vllm", "host": f"h{number}"},
            "scrapeUrl": f"http://h{number}:8000/metrics",
            "health": health,
            "lastError": "connection refused" if health == "down" else "",
        }
        for number, health in enumerate(healths)
    ]
    return {"json": {"data": {"activeTargets": active}}}


CALLED = {"json": [{"labels": {"alertname": "AlertsArrive"}}]}


def missed(*arguments: Any) -> list[dict[str, Any]]:
    return [one for one in seen.scraped(*arguments) if not one["ok"]]


def test_all_targets_scraped_and_an_alert_that_arrived_pass() -> None:
    assert missed(answer("up", "up"), CALLED, 2, "a") == []
    assert seen.firing(CALLED) == "no alert fires"


def test_a_target_down_one_too_few_and_alerts_that_do_not_arrive_are_named() -> None:
    (down,) = missed(answer("up", "down"), CALLED, 2, "a")
    assert (down["where"], down["found"]) == ("h1", "connection refused")
    (few,) = missed(answer("up"), CALLED, 2, "a")
    assert (few["expected"], few["found"]) == ("2", "1")
    (lost,) = missed(answer("up"), {"json": []}, 1, "a")
    assert (lost["expected"], lost["found"]) == ("AlertsArrive", "no alert")
    # Of a Prometheus that does not answer.
    assert len(missed({"msg": "refused"}, {"msg": "refused"}, 1, "a")) == 2
    assert seen.unscraped({"msg": "refused"}) == 1


def test_a_program_that_opens_without_the_key_is_named() -> None:
    asked = [{"status": 200, "url": "http://h:9702/metrics", "item": {"process": "observe-node"}}]
    (open_to_all,) = seen.doors(asked, 401, "h", "/logs")
    assert not open_to_all["ok"] and open_to_all["found"] == "status 200"
    assert seen.doors(asked, 200, "h", "/logs")[0]["ok"]


def test_files_need_a_directory_and_prometheus_a_host_of_this_run() -> None:
    assert all(one["ok"] for one in seen.settings("a", HOSTS, "run", ""))
    wrong = [one["where"] for one in seen.settings("c", HOSTS, "files", "") if not one["ok"]]
    assert wrong == ["observe_host", "observe_directory"]
    for off in ("off", False):
        assert all(one["ok"] for one in seen.settings("c", HOSTS, off, "", keyed=False))
    # Under --limit Prometheus is left as it is, wherever it runs.
    assert all(one["ok"] for one in seen.settings("c", HOSTS, "run", "", whole=False))
    lacking = seen.settings("a", HOSTS, "run", "", keyed=False)
    assert [one["where"].split(",")[0] for one in lacking if not one["ok"]] == ["vllm_api_key_file"]


def test_the_limit_of_the_alert_is_the_one_that_ends_the_machines(play: Any) -> None:
    (said,) = yaml.safe_load((ROOT / "playbooks/observe.yml").read_text())[-1:]
    (task,) = [one for one in said["tasks"] if "observe_found" in one.get("vars", {})]
    limit = task["vars"]["observe_found"]["spend_limit_usd"]
    tasks = [{"name": "limit", "ansible.builtin.set_fact": {"limit": limit}}]
    rented = {"provision_provider": "runpod", "max_cost": 150}
    assert play(tasks, {"here": rented})["limit"]["ansible_facts"]["limit"] == 150
    assert play(tasks, {"here": {}})["limit"]["ansible_facts"]["limit"] == 0
