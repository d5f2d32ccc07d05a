"""One prefill and one decode engine of this machine behind Dynamo, with NIXL between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .clone import MINUTE, wait_until
from .conftest import Site
from .dynamo import Programs, chat, programs, status, text_of
from .processes import end_all, identities, listeners, of_cluster
from .test_disaggregation import MODEL, Apart, moved
from .test_dynamo import routed

pytestmark = [
    pytest.mark.engine,
    pytest.mark.soak,
    pytest.mark.skipif(not Path("/usr/sbin/haproxy").exists(), reason="no haproxy on this machine"),
]
# API, gRPC, side channel and sidecar of both, etcd, NATS, the frontend, the router with its watch.
READ, WRITE = {28620, 28640, 28617, 28660, 28680}, {28720, 28740, 28717, 28760, 28780}
FRONT = {28701, 28702, 28703, 28715, 28716}
OURS = {"write-dynamo", "write-etcd", "write-nats", "read-sidecar-0", "write-sidecar-0"}


class Behind(Apart):
    """The same two engines, and Dynamo in the place of vLLM's router."""

    url = "http://127.0.0.1:28715/v1"

    def __init__(self, directory: Path, found: Programs) -> None:
        Site.__init__(self, directory, "behind")
        arguments = {"max_model_len": 2048, "dtype": "float32", "kv_cache_memory_bytes": 1 << 28}
        engine = {
            "model": "package:smollm2-135m-instruct",
            "layout": {"tensor": 1},
            "vllm_args": {**arguments, "block_size": 32},
            "front": "dynamo",
            "environment": {"VLLM_RUST_FRONTEND_PATH": found.front_end},
        }
        self.variables |= {
            "accelerator_count": 2,
            "port_base": 28600,
            "router_etcd": found.etcd,
            "router_nats": found.nats,
        }
        self.serve(
            {**engine, "name": "read", "role": "prefill"},
            {**engine, "name": "write", "role": "decode"},
        )


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    """Return the cluster, not yet brought up; nothing of it stays behind, unless it is kept."""
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    directory = Path(kept) if kept else tmp_path_factory.mktemp("behind")
    made = Behind(directory, programs(directory))
    yield made
    if kept:
        return
    end_all(made.cluster_dir)
    shutil.rmtree(made.cluster_dir, ignore_errors=True)
    shutil.rmtree(made.run_dir, ignore_errors=True)


def test_dynamo_asks_prefill_and_decode_fetches_what_it_computed(behind: Behind) -> None:
    ran = behind.start().result(40 * MINUTE)
    found, known = moved(ran), routed(ran)
    print(json.dumps([found, known]))
    (pair,) = found["pairs"]
    assert (pair["prefill"], pair["decode"]) == ("read", "write")
    for one in (pair, found["front"]):
        assert one["remote"] >= 0.9 * one["tokens"] > 100
        # vLLM's Rust front end counts no bytes.
        assert (one["bytes"], one["failed"]) == (0, 0)
    assert known["workers"] == 2 and known["events"] > 0
    assert status(behind.url, behind.key, chat(MODEL, "a ship", 4)) == 200
    assert status(behind.url, "another", chat(MODEL, "a ship", 4)) == 401


def test_the_answer_is_that_of_one_process(behind: Behind) -> None:
    """A prefill engine that is asked alone computes the whole answer."""
    body = chat(MODEL, "Write a long story about a ship.", 48)
    alone = text_of("http://127.0.0.1:28620/v1", behind.key, body)
    assert alone[0] == 200 and len(alone[1]) > 100
    assert text_of(behind.url, behind.key, body) == alone


def test_all_of_it_listens_on_loopback(behind: Behind) -> None:
    heard = listeners(behind.cluster_dir)
    assert {address for address, _ in heard} == {"127.0.0.1"}
    assert {port for _, port in heard} >= READ | WRITE | FRONT


def test_the_second_run_changes_nothing(behind: Behind) -> None:
    before = identities(behind.cluster_dir)
    ran = behind.run()
    moved(ran)
    assert routed(ran)["workers"] == 2
    assert ran.changed == []
    assert identities(behind.cluster_dir) == before
    looked = behind.run(playbook="playbooks/status.yml")
    assert looked.status == 0, looked.output
    assert all(f"{name}: running" in looked.evidence("status")[0]["summary"] for name in OURS)
    assert "sends requests to 2 of 2 engines" in looked.evidence("dynamo")[0]["summary"]


def test_a_lost_prefill_engine_starts_again_alone(behind: Behind) -> None:
    kept, pid = behind.process("write-serve")["instance"], behind.pid("read-serve")
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    asked = [text_of(behind.url, behind.key, chat(MODEL, f"ship {n}", 4)) for n in range(4)]
    print("without prefill:", asked)
    assert {one for one, _ in asked} <= {200, 500, 502, 503}
    ran = behind.run()
    moved(ran)
    assert routed(ran)["workers"] == 2
    assert behind.process("write-serve")["instance"] == kept
    wait_until(
        lambda: status(behind.url, behind.key, chat(MODEL, "a ship", 4)) == 200, MINUTE, "an answer"
    )


def test_teardown_leaves_nothing(behind: Behind) -> None:
    ran = behind.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert of_cluster(behind.cluster_dir) == []
    assert not list((behind.cluster_dir / "processes").glob("*"))
    assert not behind.run_dir.exists()
