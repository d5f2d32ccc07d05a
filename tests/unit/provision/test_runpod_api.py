"""What is asked of RunPod's API, what becomes of each kind of answer, and what a person reads."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.provision.clock import Clock
from vllm_ansible.provision.fleet import ReplyLost
from vllm_ansible.provision.runpod_api import ApiError, RunpodApi, SpendLimit
from vllm_ansible.provision.runpod_settings import ENDPOINT
from vllm_ansible.provision.runpod_words import words
from vllm_ansible.provision.transport import WAITS, Answer, Unreachable

from .script import Script

INTERVALS = {"request": 1.0, "launch": 1.0}
REFUSED = urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))


def said(data: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(data).encode())


def problem(status: int, detail: str = "no", **more: Any) -> Answer:
    return said({"title": "A Title", "status": status, "detail": detail, **more}, status)


@pytest.fixture
def script(tmp_path: Path) -> Script[RunpodApi]:
    return Script(RunpodApi, ENDPOINT, INTERVALS, tmp_path)


def test_a_request_carries_the_key_in_a_header_and_nowhere_else(script: Script[RunpodApi]) -> None:
    script.answers = [said({"pods": []})]
    assert script.api.pods() == []
    (request,) = script.asked
    assert request.full_url == "https://api.runpod.io/v2/pods?includeClusterPods=true"
    assert request.get_header("Authorization") == "Bearer secret"


def test_the_key_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="https only"):
        RunpodApi("secret", Clock(tmp_path / "clock", INTERVALS), "http://api.runpod.io/v2")


@pytest.mark.parametrize(("header", "wait"), [("7", 7.0), (None, 15.0)])
def test_too_many_requests_are_asked_again_when_the_answer_says(
    script: Script[RunpodApi], header: str | None, wait: float
) -> None:
    script.answers = [Answer(429, b"", header), said({"id": "c"}, 201)]
    assert script.api.create_cluster({}) == "c"
    assert script.slept == [wait]


def test_a_key_that_something_else_uses_all_the_time_is_reported(script: Script[RunpodApi]) -> None:
    script.answers = [Answer(429, b"", "3600")] * 9
    with pytest.raises(ApiError) as refused:
        script.api.clusters()
    assert words(refused.value)["fix"].startswith("stop what else uses this key")


def test_what_fails_on_the_way_is_asked_again_unless_it_launches(script: Script[RunpodApi]) -> None:
    for failure in (problem(500), TimeoutError("timed out"), Answer(502, b"<html>")):
        script.answers = [failure, said({"clusters": []})]
        assert script.api.clusters() == []
        for launch in (script.api.create_cluster, script.api.create_pod):
            script.answers = [failure]
            with pytest.raises(ReplyLost):
                launch({})
    script.answers = [REFUSED, said({"id": "c"}, 201)]
    assert script.api.create_cluster({}) == "c"


def test_no_answer_is_reported_with_what_was_asked(script: Script[RunpodApi]) -> None:
    script.answers = [TimeoutError("timed out")] * (len(WAITS) + 1)
    with pytest.raises(Unreachable, match=r"GET https://api\S+/clusters: timed out") as silence:
        script.api.clusters()
    told = words(silence.value)
    assert told["msg"] == "RunPod's API gives no answer"
    assert "none is launched twice" in told["fix"]


@pytest.mark.parametrize("answer", [Answer(302, b""), said(["a"], 400), Answer(200, b"<html>")])
def test_an_answer_of_something_else_is_none_of_the_api(
    script: Script[RunpodApi], answer: Answer
) -> None:
    script.answers = [answer] * (len(WAITS) + 1)
    with pytest.raises(Unreachable, match="an answer that is not the API's"):
        script.api.clusters()


def test_what_is_gone_already_is_ended(script: Script[RunpodApi]) -> None:
    script.answers = [problem(404), Answer(204, b""), problem(409, "pod belongs to a cluster")]
    script.api.delete_cluster("c")
    script.api.delete_volume("v")
    with pytest.raises(ApiError, match="belongs to a cluster"):
        script.api.delete_pod("p")


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (401, "create a key in RunPod's console"),
        (402, "add credit to the RunPod account"),
        (403, "give the key read and write access to pods, clusters and network volumes"),
        (422, "correct the variable that the refusal names"),
        (400, "correct the inventory"),
    ],
)
def test_each_refusal_comes_in_the_words_of_the_api_with_its_own_way_out(
    script: Script[RunpodApi], status: int, fix: str
) -> None:
    script.answers = [problem(status, "no such luck", errors=["$.disk: too small"])]
    with pytest.raises(ApiError) as refused:
        script.api.create_cluster({})
    told = words(refused.value)
    assert told["msg"] == "RunPod refused: no such luck"
    assert told["found"] == f"A Title (status {status}): $.disk: too small"
    assert told["fix"].startswith(fix)


def test_a_spend_limit_that_is_suspected_says_where_to_look() -> None:
    told = words(SpendLimit(400, "Bad Request", "no instances (5 times)"))
    assert told["msg"].endswith("(5 times)")
    assert told["fix"].startswith("an account's spend limit looks like this")


CALLS: list[tuple[Callable[[RunpodApi], Any], str, str, Any]] = [
    (lambda api: api.gpu_types(), "GET", "/catalog/gpus", {"gpus": []}),
    (
        lambda api: api.stock(8, "CLUSTER"),
        "GET",
        "/catalog/gpus?include=AVAILABILITY&product=CLUSTER&count=8&cloud=SECURE",
        {"gpus": []},
    ),
    (lambda api: api.data_centers(), "GET", "/catalog/datacenters", {"dataCenters": []}),
    (lambda api: api.volumes(), "GET", "/network-volumes", {"networkVolumes": []}),
    (lambda api: api.create_volume("r1", "US-KS-2", 10), "POST", "/network-volumes", {"id": "v"}),
]


@pytest.mark.parametrize(("call", "method", "path", "data"), CALLS)
def test_each_call_asks_for_what_the_api_documents(
    script: Script[RunpodApi], call: Callable[[RunpodApi], Any], method: str, path: str, data: Any
) -> None:
    script.answers = [said(data)]
    call(script.api)
    (request,) = script.asked
    assert (request.method, request.full_url.partition("/v2")[2]) == (method, path)
