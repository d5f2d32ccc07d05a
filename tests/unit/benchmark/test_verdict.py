"""Judging all engines, and which host is asked about which."""

from __future__ import annotations

from typing import Any

from vllm_ansible.benchmark.cost import engine_price
from vllm_ansible.benchmark.served import measured, served_on
from vllm_ansible.benchmark.verdict import verdict


def engine(name: str, *hosts: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served_name": f"{name}-model",
        "hosts": list(hosts),
        "ports": {"api": 8000},
        "reasons": ["because"],
        **more,
    }


FIGURES = {
    "name": "chat",
    "requests": 8,
    "failed": 0,
    "concurrency": 2,
    "ttft_ms_median": 142.4,
    "output_tokens_per_second": 23.06,
    "measured_at": "2026-11-20 11:04 UTC",
}


RANKED = {
    "layout": {"tensor": 1, "pipeline": 1, "data": 2},
    "ports": {"api": 8000, "worker_first": 20020},
    "ranks": [{"rank": rank, "host": host, "device": 0} for rank, host in enumerate("ab")],
}


ESTIMATE = {
    "output_tokens_per_second": [1000.4, 1500.2, 2250.0],
    "concurrency": 64.0,
    "input_tokens": 1024,
    "output_tokens": 512,
}


def test_the_planned_rate_stands_beside_one_measured_at_the_same_load() -> None:
    planned = engine("chat", "a", estimate=ESTIMATE)
    (one,) = served_on({"engines": [planned]}, {"name": "a", "address": "10.0.0.1"})
    load = {"concurrency": 64, "input_tokens": 1024, "output_tokens": 512}
    assert one["load"] == {"requests": 128, **load}
    slow = {**ESTIMATE, "output_tokens_per_second": [100, 150, 225]}
    (one,) = served_on(
        {"engines": [engine("chat", "a", estimate=slow)]}, {"name": "a", "address": ""}
    )
    assert one["load"]["requests"] == 64, "two rounds would take minutes"
    looks = {"a": {"engines": {"chat": {"figures": {**FIGURES, **load, "requests": 128}}}}}
    evidence = verdict([planned], looks, check=False)["evidence"]
    assert "23.1 tokens/s (planned 1,500, 1,000 to 2,250) at 64 concurrent" in evidence["summary"]
    assert evidence["values"]["engines"][0]["planned_tokens_per_second"] == [1000.4, 1500.2, 2250.0]
    other = {"a": {"engines": {"chat": {"figures": FIGURES}}}}
    assert "planned" not in verdict([planned], other, check=False)["evidence"]["summary"]


def test_of_data_ranks_the_first_is_measured_and_the_summary_says_so() -> None:
    planned = engine("chat", "a", "b", **RANKED)
    (one,) = served_on({"engines": [planned]}, {"name": "a", "address": "10.0.0.1"})
    assert (one["url"], one["server"]) == ("http://10.0.0.1:20020", "chat-serve-0")
    assert served_on({"engines": [planned]}, {"name": "b", "address": "10.0.0.2"}) == []
    looks = {"a": {"engines": {"chat": {"figures": FIGURES}}}, "b": {"engines": {}}}
    evidence = verdict([planned], looks, check=False)["evidence"]
    assert evidence["summary"].startswith("chat, rank 0 of 2 data ranks alone: TTFT 142 ms")
    assert evidence["values"]["engines"][0]["ranks"][1] == {"rank": 1, "host": "b", "port": 20021}
    failed = verdict([planned], {"a": {"engines": {}}}, check=False)
    assert failed["msg"] == "chat cannot be measured: chat-serve-0 does not run on a"
    assert failed["where"] == "a, port 20020"


def apart() -> dict[str, Any]:
    """Return a plan with one engine that prefills on b, and one that decodes on a."""

    def one(name: str, role: str, host: str, **more: Any) -> dict[str, Any]:
        ranks = [{"rank": 0, "host": host, "device": 0}]
        ports = {"api": 8000, "gcs": 20000, "worker_first": 20020}
        more |= {"role": role, "served_name": "model", "ports": ports, "ranks": ranks}
        return engine(name, host, estimate=ESTIMATE, **more)

    return {"engines": [one("read", "prefill", "b"), one("write", "decode", "a", front="pairs")]}


def test_of_a_set_its_address_is_measured_and_no_engine_of_it_alone() -> None:
    plan = apart()
    (one,) = served_on(plan, {"name": "a", "address": "10.0.0.1"})
    assert (one["name"], one["url"]) == ("write", "http://10.0.0.1:8000")
    assert (one["server"], one["router"]) == ("write-serve", "write-router")
    # The planned rate is one of an engine that does both.
    assert "load" not in one
    assert served_on(plan, {"name": "b", "address": "10.0.0.2"}) == []
    # Asked for by the name of any of its engines, a set is measured.
    assert measured(plan, "read") == measured(plan, "write") == measured(plan, "")
    looks = {"a": {"engines": {"write": {"figures": {**FIGURES, "name": "write"}}}}, "b": {}}
    evidence = verdict(measured(plan, "")["engines"], looks, check=False)["evidence"]
    assert evidence["summary"].startswith("write, a set of 1 prefill and 1 decode: TTFT 142 ms")
    changed = apart()
    changed["engines"][0]["arguments"] = ["--max-num-seqs", "4"]
    (other,) = served_on(changed, {"name": "a", "address": "10.0.0.1"})
    assert other["digest"] != one["digest"]


def test_a_set_costs_what_all_its_engines_cost() -> None:
    plan = apart()
    (one,) = measured(plan, "")["engines"]
    hosts = {"a": {"given": 3.0}, "b": {"given": 2.0}}
    assert engine_price(one, plan["engines"], hosts)["usd_per_hour"] == 5.0


def test_the_summary_is_a_line_for_each_engine() -> None:
    looks = {"a": {"engines": {"chat": {"figures": FIGURES}}}, "b": {"engines": {}}}
    found = verdict([engine("chat", "a", "b")], looks, check=False)
    assert found["evidence"]["summary"] == (
        "chat: TTFT 142 ms, 23.1 tokens/s at 2 concurrent, 8 of 8 answered, "
        "load from the engine's host (2026-11-20 11:04 UTC)"
    )
    assert found["evidence"]["values"] == {"engines": [FIGURES]}


def test_an_engine_of_another_run_is_left_out() -> None:
    looks = {"a": {"engines": {"chat": {"figures": FIGURES}}}}
    engines = [engine("chat", "a"), engine("experts", "c")]
    found = verdict(engines, looks, check=False)
    assert [one["name"] for one in found["evidence"]["values"]["engines"]] == ["chat"]


def test_an_engine_that_does_not_run_is_named_with_its_host() -> None:
    looks = {"a": {"engines": {"chat": {"running": False, "why": "it ended with exit status 1"}}}}
    found = verdict([engine("chat", "a")], looks, check=False)
    assert found["failed"]
    assert (found["found"], found["where"]) == ("it ended with exit status 1", "a, port 8000")


def test_check_mode_says_what_it_did_not_measure() -> None:
    looks = {"a": {"engines": {"chat": {"running": False, "why": "it was never started here"}}}}
    found = verdict([engine("chat", "a")], looks, check=True)
    assert found == {
        "skipped": True,
        "msg": "check mode: chat is not measured: it was never started here",
    }


def test_no_plan_is_no_success() -> None:
    found = verdict([], {"a": {"engines": {}}}, check=False)
    assert found["failed"]
    assert "site.yml" in found["fix"]


def test_a_host_is_asked_about_what_it_serves() -> None:
    plan = {"engines": [engine("chat", "a", "b"), engine("experts", "b", "a")]}
    (served,) = served_on(plan, {"name": "b", "address": "10.0.0.2"})
    assert (served["name"], served["url"]) == ("experts", "http://10.0.0.2:8000")


def test_the_digest_follows_the_plan_but_not_its_words() -> None:
    host = {"name": "a", "address": "10.0.0.1"}

    def digest(**more: Any) -> str:
        return served_on({"engines": [engine("chat", "a", **more)]}, host)[0]["digest"]

    assert digest() == digest(reasons=["for another reason"])
    assert digest() != digest(arguments=["--max-model-len", "1024"])


def test_a_rate_during_which_the_engine_compiled_is_marked_and_not_judged() -> None:
    load = {"concurrency": 64, "input_tokens": 1024, "output_tokens": 512}
    # As the log of an H200 had it: tests/data/h200-layouts.json.
    line = "Triton kernel JIT compilation during inference: fused_moe_kernel"
    figures = {**FIGURES, **load, "compiled": line}
    looks = {"a": {"engines": {"chat": {"figures": figures}}}}
    evidence = verdict([engine("chat", "a", estimate=ESTIMATE)], looks, check=False)["evidence"]
    assert "planned" not in evidence["summary"]
    assert evidence["summary"].endswith("; vLLM compiled meanwhile, so this rate is not judged")
    assert evidence["values"]["engines"][0]["compiled"] == line
