"""The engine answers a question over its two hosts, to those who have the key."""

from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host

QUESTION = {"role": "user", "content": "What is the capital of France?"}


@pytest.fixture
def url(plan: dict[str, Any], data_addresses: dict[str, str]) -> str:
    return f"http://{data_addresses['lab1']}:{plan['ports']['api']}/v1"


@pytest.fixture
def question(plan: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": plan["served_name"],
        "messages": [QUESTION],
        "max_tokens": 16,
        "temperature": 0,
    }


def test_every_host_of_the_data_plane_gets_the_right_answer(
    url: str, question: dict[str, Any], cluster_dir: str, ask: Callable[..., tuple[int, Any]]
) -> None:
    key = f"{cluster_dir}/secrets/api_key"
    status, answer = ask(f"{url}/chat/completions", key, question)
    assert status == 200
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_without_the_key_there_is_no_answer(
    url: str, question: dict[str, Any], cluster_dir: str, ask: Callable[..., tuple[int, Any]]
) -> None:
    assert ask(f"{url}/chat/completions", "", question)[0] == 401
    other = f"{cluster_dir}/secrets/ray_token"
    assert ask(f"{url}/chat/completions", other, question)[0] == 401
    # vLLM itself guards /v1 only.
    for path in ("invocations", "tokenize", "version"):
        assert ask(f"{url.removesuffix('/v1')}/{path}", "", question)[0] == 401, path


def test_the_server_runs_on_the_head_as_the_service(
    name: str, family: Callable[[str], list[dict[str, Any]]]
) -> None:
    found = family("chat-serve")
    assert {one["user"] for one in found} == ({"vllm-molecule"} if name == "lab1" else set())
    assert len([one for one in found if " serve " in one["arguments"]]) == (name == "lab1")


def test_each_host_holds_one_rank_that_ends_with_its_ray_node(
    family: Callable[[str], list[dict[str, Any]]],
) -> None:
    ranks = [one for one in family("chat-ray") if "RayWorker" in one["arguments"]]
    assert len(ranks) == 1


def test_the_api_is_on_the_data_plane_only(
    host: Host, name: str, plan: dict[str, Any], data_addresses: dict[str, str]
) -> None:
    port = plan["ports"]["api"]
    listening = [one for one in host.socket.get_listening_sockets() if one.endswith(f":{port}")]
    assert listening == ([f"tcp://{data_addresses['lab1']}:{port}"] if name == "lab1" else [])


def test_the_key_is_in_no_argument_environment_or_log(
    cluster_dir: str, mentions: Callable[[str, str], list[str]]
) -> None:
    assert mentions(f"{cluster_dir}/secrets/api_key", f"{cluster_dir}/logs") == []


def test_the_key_file_is_the_services_own(
    name: str, cluster_dir: str, owned: Callable[[str, str, int], None]
) -> None:
    if name == "lab1":
        owned(f"{cluster_dir}/engines/chat/key.yaml", "vllm-molecule", 0o600)
