"""Which servers stand behind a model, and when the stage does nothing at all."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from vllm_ansible.door import served
from vllm_ansible.load_page.offer import subject_names
from vllm_ansible.problem import PlanError

ROOT = Path(__file__).parents[3]
HOSTS = [{"name": "h1", "address": "10.0.0.1"}, {"name": "h2", "address": "10.0.0.2"}]


def engine(name: str, model: str, host: str = "h1", data: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "served_name": model,
        "layout": {"data": data, "tensor": 1, "pipeline": 1},
        "hosts": ["h1", "h2"] if data > 1 else [host],
        "ranks": [{"host": one, "device": 0} for one in ("h1", "h2")[:data]],
        "ports": {"api": 8000, "worker_first": 20001},
    }


def addresses(models: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {
        one["model"]: [f"{server['address']}:{server['port']}" for server in one["servers"]]
        for one in models
    }


def test_engines_of_one_name_share_its_requests() -> None:
    engines = [engine("a", "m"), engine("b", "n", "h2"), engine("c", "m", "h2")]
    found = served.models(engines, HOSTS, {})
    assert addresses(found) == {"m": ["10.0.0.1:8000", "10.0.0.2:8000"], "n": ["10.0.0.2:8000"]}
    assert [one["backend"] for one in found] == ["model0", "model1"]
    assert served.models_text(found) == "model0 m\nmodel1 n\n"


def test_a_model_is_served_by_priority_where_all_its_engines_do_so() -> None:
    by = {"arguments": ["--scheduling-policy", "priority"]}
    engines = [engine("a", "m") | by, engine("b", "n") | by, engine("c", "m", "h2")]
    assert served.models_text(served.models(engines, HOSTS, {})) == "model0 m\nmodel1+ n\n"
    # Dynamo refuses what it does not know.
    engines[1]["front"] = "dynamo"
    assert served.models_text(served.models(engines, HOSTS, {})) == "model0 m\nmodel1 n\n"


def test_an_adapter_is_asked_for_by_its_own_name_at_the_engines_that_have_it() -> None:
    both = {
        "arguments": ["--enable-lora", "--lora-modules", "law=/a", "tax=/b", "--max-loras", "2"]
    }
    one = {"arguments": ["--lora-modules", "law=/a", "--scheduling-policy", "priority"]}
    engines = [engine("a", "m") | both, engine("b", "m", "h2") | one, engine("c", "n")]
    found = served.models(engines, HOSTS, {})
    first, second = "10.0.0.1:8000", "10.0.0.2:8000"
    assert addresses(found) == {"m": [first, second], "tax": [first], "n": [first]}
    assert served.models_text(found) == "model0 m\nmodel0 law\nmodel1 tax\nmodel2 n\n"
    assert served.summary(found, 2) == "m, law, tax, n, 2 clients"
    # Dynamo answers for a model alone.
    engines[0]["front"] = "dynamo"
    assert served.models_text(served.models(engines[:1], HOSTS, {})) == "model0 m\n"


def test_ranks_answer_by_their_router_where_one_runs_and_each_for_itself_elsewhere() -> None:
    one = engine("a", "m", data=2)
    router = {"h1": {"a-router": {"engine": ""}}}
    assert addresses(served.models([one], HOSTS, router)) == {"m": ["10.0.0.1:8000"]}
    ranks = ["10.0.0.1:20001", "10.0.0.2:20002"]
    assert addresses(served.models([one], HOSTS, {})) == {"m": ranks}


def test_a_host_that_is_left_out_and_a_plan_without_engines_are_refused() -> None:
    with pytest.raises(PlanError, match="the door stands before a, and this run leaves out"):
        served.models([engine("a", "m", "h2")], HOSTS[:1], {})
    with pytest.raises(PlanError, match="no engine to stand before"):
        served.models([], HOSTS, {})


def unasked(*hosts: dict[str, Any]) -> bool:
    path = ROOT / "filter_plugins/door_filters.py"
    spec = importlib.util.spec_from_file_location("door_filters", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: bool = module.door_unasked(hosts)
    return found


def test_the_stage_ends_before_it_begins_only_where_no_door_is_asked_for_and_none_runs() -> None:
    none = {"plan_processes": {"chat-serve": {}}}
    one = {"__vllm_processes": {"processes": {"door": {}}}}
    skipped = {"plan_processes": {}, "__vllm_processes": {"skipped": True}}
    assert unasked(none, none) and unasked(skipped)
    assert not unasked(none, {**none, "door_clients_file": "clients.yml"})
    assert not unasked(none, one)
    # A stage that runs alone has not looked.
    assert not unasked({})
    # There is nothing to be seen on a machine that is still to be rented.
    assert unasked({"provision_provider": "lambda"})
    assert not unasked({"provision_provider": "lambda", "provision_machine": {"id": "i-1"}})


def test_doors_know_each_other_and_share_the_names_of_their_certificate() -> None:
    hosts = [{"name": "h1", "address": "10.0.0.1"}, {"name": "h 2", "address": "10.0.0.2"}]
    other = {"name": "h_2", "address": "10.0.0.2"}
    assert served.peers(["h1", "h 2"], "h1", hosts) == [other]
    assert served.peers(["h1"], "h1", hosts) == served.peers(["h1", "h 2"], "h3", hosts) == []
    reached = {"h1": "192.0.2.1", "h 2": ""}
    names = ["h1", "10.0.0.1", "192.0.2.1", "h 2", "10.0.0.2", "h 2"]
    assert served.subjects(["h1", "h 2"], hosts, reached) == names


@pytest.mark.parametrize(("doors", "listed"), [(["h2", "h1"], ["h1", "h2"]), (["h2"], ["h2"])])
def test_the_order_of_doors_makes_no_other_certificate(doors: list[str], listed: list[str]) -> None:
    fixed = yaml.safe_load((Path(__file__).parents[3] / "roles/door/vars/main.yml").read_text())
    environment = NativeEnvironment()
    environment.filters |= {
        "door_subjects": served.subjects,
        "load_page_subject_names": subject_names,
    }
    found = environment.from_string(fixed["door_subjects"]).render(
        door_on=doors, site_hosts=HOSTS, door_reached={}, door_names=[]
    )
    names = ["localhost", "127.0.0.1", *served.subjects(listed, HOSTS, {})]
    assert found.strip() == subject_names(names)


@pytest.mark.parametrize(
    ("doors", "key", "wrong"),
    [
        (["h1"], "", []),
        (["h1", "h2"], "k", []),
        (["h1", "h2"], "", ["site_api_key_file"]),
        (["h1", "h1"], "k", ["door_hosts"]),
        (["h1", "h3"], "k", ["door_hosts"]),
        (["h3"], "k", ["door_host"]),
    ],
)
def test_settings_of_several_doors_are_judged(doors: list[str], key: str, wrong: list[str]) -> None:
    rows = served.setting_measurements(doors, HOSTS, "", "", key)
    assert [row["where"] for row in rows if not row["ok"]] == wrong


def test_a_door_that_may_not_read_the_other_fails_the_gate() -> None:
    asked = [
        {"item": {"name": "h2"}, "status": 200, "msg": "OK"},
        {"item": {"name": "h3"}, "status": 401, "msg": "Unauthorized"},
        {"item": {"name": "h4"}, "status": -1, "msg": "timed out"},
    ]
    rows = served.peer_measurements(asked, "h1", "/log")
    assert [row["ok"] for row in rows] == [True, False, False]
    assert [row["found"] for row in rows] == ["status 200", "status 401", "timed out"]


NO_STATUS: list[dict[str, Any]] = [
    {"item": {"name": "h2", "status": 401, "path": "v1"}, "failed": False, "msg": "MODULE FAILURE"},
    {"item": {"name": "h3", "status": 401, "path": "v1"}, "failed": False},
]


def test_a_question_without_a_status_fails_the_gate_and_one_of_check_mode_is_none() -> None:
    skipped = {"item": {"name": "h4", "status": 401, "path": "v1"}, "skipped": True}
    for judge in (served.peer_measurements, served.measurements):
        rows = judge([*NO_STATUS, skipped], "h1", "/log")
        assert [row["ok"] for row in rows] == [False, False]
        assert [row["found"] for row in rows] == ["MODULE FAILURE", "no status"]


def test_a_question_without_a_status_is_asked_again() -> None:
    tasks = yaml.safe_load((ROOT / "roles/door/tasks/prove.yml").read_text())
    untils = {one["register"]: one["until"] for one in tasks if "until" in one}
    assert len(untils) == 2
    for name, until in untils.items():
        holds = jinja2.Environment(autoescape=True).compile_expression(until)
        for result in NO_STATUS:
            assert holds(**{"item": result["item"], name: result}) is False
        item = {"name": "h2", "status": 200}
        assert holds(**{"item": item, name: {"status": 200}}) is True
