"""What is asked of Lambda's API, in what turn, and what becomes of each kind of answer."""

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
from vllm_ansible.provision.lambda_api import (
    ENDPOINT,
    INTERVALS,
    NO_CAPACITY,
    ApiError,
    LambdaApi,
)
from vllm_ansible.provision.transport import WAITS, Answer, Unreachable

from .script import Script

LAUNCH = {
    "region_name": "us-east-3",
    "instance_type_name": "gpu_1x_gh200",
    "ssh_key_names": ["mine"],
}
REFUSED = urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))


def said(data: Any) -> Answer:
    return Answer(200, json.dumps({"data": data}).encode())


def error(status: int, code: str, message: str = "no", **more: str) -> Answer:
    return Answer(
        status, json.dumps({"error": {"code": code, "message": message, **more}}).encode()
    )


@pytest.fixture
def script(tmp_path: Path) -> Script[LambdaApi]:
    return Script(LambdaApi, ENDPOINT, INTERVALS, tmp_path)


def test_a_request_carries_the_key_in_a_header_and_nowhere_else(script: Script[LambdaApi]) -> None:
    script.answers = [said([{"id": "a"}])]
    assert script.api.instances() == [{"id": "a"}]
    (request,) = script.asked
    assert request.full_url == "https://cloud.lambda.ai/api/v1/instances"
    assert request.get_header("Authorization") == "Bearer secret"
    assert "secret" not in request.full_url


def test_a_launch_takes_the_slower_turn(script: Script[LambdaApi]) -> None:
    script.answers = [said({"instance_ids": ["a"]}), said({"instance_ids": ["b"]}), said([])]
    assert [script.api.launch(LAUNCH), script.api.launch(LAUNCH)] == ["a", "b"]
    script.api.instances()
    assert script.slept == [12.0, 1.0]
    assert json.loads(script.asked[0].data or b"") == LAUNCH  # type: ignore[arg-type]


@pytest.mark.parametrize(("header", "wait"), [("7", 7.0), (None, 15.0), ("soon", 15.0), ("0", 1.0)])
def test_too_many_requests_are_asked_again_when_the_answer_says(
    script: Script[LambdaApi], header: str | None, wait: float
) -> None:
    script.answers = [Answer(429, b"", header), said([])]
    assert script.api.instances() == []
    assert script.slept == [wait]


def test_a_launch_that_came_too_early_was_not_carried_out_and_is_asked_again(
    script: Script[LambdaApi],
) -> None:
    script.answers = [Answer(429, b"", "20"), said({"instance_ids": ["a"]})]
    assert script.api.launch(LAUNCH) == "a"
    assert script.slept == [20.0]


@pytest.mark.parametrize(
    "failure",
    [
        error(500, "global/internal-error"),
        Answer(502, b"<html>Bad Gateway</html>"),
        TimeoutError("timed out"),
        ConnectionResetError(104, "Connection reset by peer"),
        REFUSED,
    ],
)
def test_what_fails_on_the_way_is_asked_again(
    script: Script[LambdaApi], failure: Answer | Exception
) -> None:
    script.answers = [failure, failure, said([])]
    assert script.api.instances() == []
    assert script.slept == [1.0, 2.0]


def test_a_failure_that_stays_is_told_with_what_was_asked(script: Script[LambdaApi]) -> None:
    script.answers = [TimeoutError("timed out")] * (len(WAITS) + 1)
    with pytest.raises(Unreachable, match=r"GET https://cloud\S+/instances: timed out"):
        script.api.instances()
    assert script.slept == list(WAITS)


def test_a_launch_whose_answer_is_lost_is_not_sent_again(script: Script[LambdaApi]) -> None:
    for failure in (TimeoutError("timed out"), error(500, "global/internal-error")):
        script.answers = [failure]
        with pytest.raises(ReplyLost):
            script.api.launch(LAUNCH)
        assert script.answers == []


def test_a_launch_that_something_behind_the_api_refuses_may_have_been_made(
    script: Script[LambdaApi],
) -> None:
    script.answers = [error(400, "provider/unknown", "Try again shortly")]
    with pytest.raises(ReplyLost):
        script.api.launch(LAUNCH)


@pytest.mark.parametrize("instances", [[], ["a", "b"]])
def test_a_launch_that_is_answered_with_another_number_counts_as_lost(
    script: Script[LambdaApi], instances: list[str]
) -> None:
    script.answers = [said({"instance_ids": instances})]
    with pytest.raises(ReplyLost):
        script.api.launch(LAUNCH)


def test_a_key_that_something_else_uses_all_the_time_is_told(script: Script[LambdaApi]) -> None:
    script.answers = [Answer(429, b"", "3600")] * 9
    began = script.now
    with pytest.raises(ApiError, match="too many requests"):
        script.api.instances()
    assert script.now - began < 600


def test_a_launch_that_could_not_be_sent_is(script: Script[LambdaApi]) -> None:
    script.answers = [REFUSED, said({"instance_ids": ["a"]})]
    assert script.api.launch(LAUNCH) == "a"


def test_a_refusal_comes_in_the_words_of_the_api(script: Script[LambdaApi]) -> None:
    script.answers = [error(400, NO_CAPACITY, "Not enough capacity", suggestion="Try later")]
    with pytest.raises(ApiError, match="Not enough capacity") as refused:
        script.api.launch(LAUNCH)
    found = refused.value
    assert (found.status, found.code, found.suggestion) == (400, NO_CAPACITY, "Try later")


CALLS: list[tuple[Callable[[LambdaApi], Any], str, str, Any]] = [
    (lambda api: api.terminate(["a"]), "POST", "/instance-operations/terminate", None),
    (lambda api: api.create_file_system("f", "r"), "POST", "/filesystems", {"id": "f"}),
    (lambda api: api.delete_file_system("f"), "DELETE", "/filesystems/f", {}),
    (lambda api: api.create_ruleset("n", "r", []), "POST", "/firewall-rulesets", {"id": "n"}),
    (lambda api: api.change_ruleset("n", []), "PATCH", "/firewall-rulesets/n", {"id": "n"}),
    (lambda api: api.delete_ruleset("n"), "DELETE", "/firewall-rulesets/n", {}),
    (lambda api: api.instance_types(), "GET", "/instance-types", {}),
    (lambda api: api.file_systems(), "GET", "/file-systems", []),
    (lambda api: api.ssh_keys(), "GET", "/ssh-keys", []),
    (lambda api: api.rulesets(), "GET", "/firewall-rulesets", []),
    (lambda api: api.regions(), "GET", "/regions", []),
    (lambda api: api.rename("a", "r1-0"), "POST", "/instances/a", {"id": "a"}),
]


@pytest.mark.parametrize(("call", "method", "path", "data"), CALLS)
def test_each_call_asks_for_what_the_api_documents(
    script: Script[LambdaApi], call: Callable[[LambdaApi], Any], method: str, path: str, data: Any
) -> None:
    script.answers = [said({"terminated_instances": [{"id": "a"}]} if data is None else data)]
    call(script.api)
    (request,) = script.asked
    assert (request.method, request.full_url.partition("/api/v1")[2]) == (method, path)


@pytest.mark.parametrize(
    "endpoint", ["http://cloud.lambda.ai/api/v1", "http://127.0.0.1.evil.org:1"]
)
def test_the_key_is_not_sent_in_the_clear(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(ValueError, match="https only"):
        LambdaApi("secret", Clock(tmp_path / "clock", INTERVALS), endpoint)
