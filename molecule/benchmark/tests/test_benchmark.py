"""The kept figures are of the server that runs, and agree with what it counted itself."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from testinfra.host import Host


@pytest.fixture
def kept(head: Host, cluster_dir: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        head.file(f"{cluster_dir}/evidence/benchmark-chat.json").content_string
    )
    return found


def test_every_request_was_answered_in_full(kept: dict[str, Any]) -> None:
    figures = kept["figures"]
    assert (figures["requests"], figures["failed"], figures["output_tokens"]) == (4, 0, 8)
    tokens = figures["output_tokens_per_second"] * figures["duration_seconds"]
    assert tokens == pytest.approx(4 * 8, rel=0.1)
    assert 0 < figures["ttft_ms_median"] <= figures["ttft_ms_p99"]


def test_the_server_counted_at_least_as_many_tokens(
    plan: dict[str, Any],
    data_addresses: dict[str, str],
    cluster_dir: str,
    ask: Callable[..., tuple[int, Any]],
) -> None:
    url = f"http://{data_addresses['lab1']}:{plan['ports']['api']}/metrics"
    status, text = ask(url, f"{cluster_dir}/secrets/api_key")
    assert status == 200
    counted = re.findall(r"^vllm:generation_tokens_total\{.*\} ([0-9.e+]+)$", text, re.MULTILINE)
    assert sum(map(float, counted)) >= 4 * 8


def test_what_was_measured_is_the_server_that_runs(head: Host, kept: dict[str, Any]) -> None:
    said = head.check_output("systemctl show --property InvocationID vllm-molecule-chat-serve")
    assert said == f"InvocationID={kept['fingerprint']['instance']}"


def test_only_the_first_host_keeps_figures_and_nothing_measures_any_more(
    host: Host, name: str, cluster_dir: str
) -> None:
    assert host.file(f"{cluster_dir}/evidence/benchmark-chat.json").exists is (name == "lab1")
    assert not host.file(f"{cluster_dir}/engines/chat/cache/benchmark.json").exists
    assert not [
        one for one in host.process.filter(user="vllm-molecule") if "bench serve" in one.args
    ]


def test_the_client_got_the_key_by_file(
    cluster_dir: str, mentions: Callable[[str, str], list[str]]
) -> None:
    for place in ("tasks", "evidence", "logs"):
        assert mentions(f"{cluster_dir}/secrets/api_key", f"{cluster_dir}/{place}") == []
