"""The one point is kept on the head, and the engine that served before it still does."""

import json
from typing import Any

import pytest
from testinfra.host import Host


@pytest.fixture
def kept(head: Host, cluster_dir: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        head.file(f"{cluster_dir}/evidence/sweep-chat.json").content_string
    )
    return found


def test_the_point_was_measured_with_as_many_requests_at_once_as_sequences(
    kept: dict[str, Any],
) -> None:
    (point,) = kept["points"]
    assert (point["max_num_seqs"], point["max_num_batched_tokens"]) == (16, 2048)
    assert (point["ok"], point["figures"]["concurrency"]) == (True, 16)
    assert (point["figures"]["requests"], point["figures"]["output_tokens"]) == (16, 8)
    assert point["figures"]["output_tokens_per_second"] > 0


def test_the_engine_is_as_the_inventory_wants_it(
    kept: dict[str, Any], plan: dict[str, Any], head: Host
) -> None:
    assert kept["before"] == {}
    assert plan["arguments"][plan["arguments"].index("--max-num-seqs") + 1] == "16"
    (server,) = [
        one for one in head.process.filter(user="vllm-molecule") if "vllm serve" in one.args
    ]
    assert "--max-num-batched-tokens 2048" in server.args


def test_only_the_head_keeps_the_sweep(host: Host, name: str, cluster_dir: str) -> None:
    assert host.file(f"{cluster_dir}/evidence/sweep-chat.json").exists is (name == "lab1")
