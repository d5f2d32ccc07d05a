"""RunPod's stages of money with real engines: one pod, then a cluster, by Dynamo and by roles.

The API is emulated, its pods are hosts of a lab without systemd; vLLM, Dynamo, etcd and NATS are
real. The network volume is a directory of each pod, which takes it over from the pod before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from .clone import MINUTE, Ran
from .dynamo import programs
from .rented_runpod import RentedRunpod, rented_runpod
from .two_hosts import PYTHON

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.soak]
FRONT_END = "/opt/vllm-rs"
MODEL = "smollm2-135m-instruct"
PROMPTS = [
    "What is the capital of France?",
    "Write a long story about a ship.",
    "Explain what a network volume is.",
    "Count from one to twenty in words.",
]
TOKENS = 32
# The likeliest tokens of each prompt; the certificate of the door is its own.
ASK = """
import json, ssl, sys, urllib.request
url, key, model, tokens, *prompts = sys.argv[1:]
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
)
found = []
for prompt in prompts:
    body = {
        "model": model, "messages": [{"role": "user", "content": prompt}],
        "max_tokens": int(tokens), "temperature": 0, "ignore_eos": True,
    }
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
    with opener.open(request, timeout=120) as answer:
        said = json.load(answer)
    found.append([said["choices"][0]["message"]["content"], said["usage"]["completion_tokens"]])
print(json.dumps(found))
"""


@dataclass
class Money:
    """The stages of money of one account: what is rented next, and what one process has said."""

    rented: RentedRunpod
    engine: dict[str, Any]
    one_process: list[Any] = field(default_factory=list)
    # Where the door is, and the key of its client.
    door: tuple[str, str] = ("", "")

    def rent(self, cluster: str, pods: int, *engines: dict[str, Any]) -> None:
        """Write what the next commands rent and serve."""
        listed = [{**self.engine, **one} for one in engines]
        wanted = {"cluster_name": cluster, "node_count": pods, "engines": listed}
        self.rented.variables |= wanted

    def ask(self, url: str, key: str) -> list[Any]:
        """Return texts and numbers of tokens, asked on the first pod."""
        words = [PYTHON, "-c", ASK, url, key, MODEL, str(TOKENS), *PROMPTS]
        found: list[Any] = json.loads(self.rented.inside(*words, ranks=1)[0])
        return found

    def key(self, cluster: str) -> str:
        """Return the key of a cluster's engines."""
        return (self.rented.clone.directory / "state" / cluster / "api_key").read_text().strip()


@pytest.fixture(scope="module")
def money(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Money]:
    directory = tmp_path_factory.mktemp("runpod-dynamo")
    with rented_runpod(directory) as made:
        (engine,) = made.variables["engines"]
        made.variables["accelerator_count"] = 2
        engine = {key: value for key, value in engine.items() if key != "nodes"}
        engine["vllm_args"] = {**engine["vllm_args"], "kv_cache_memory_bytes": 1 << 28}
        made.pods.mounted = "/workspace"
        made.variables["models_dir"] = "/workspace/models"
        # 15 s of processor time for each cluster; test_computation.py has it.
        made.variables["vllm_reference_gib"] = 0
        # As an image with the official wheel has it.
        made.pods.files[FRONT_END] = programs(directory).front_end
        yield Money(made, engine)


def answered(ran: Ran) -> str:
    """Return where the engine of a run answers that went well."""
    assert ran.status == 0, ran.output[-20_000:]
    # The engines by themselves, then as clients ask: behind their front.
    engines = ran.evidence("serve")[-1]["values"]["engines"]
    assert all(one["answer"].startswith("The capital of France is Paris") for one in engines)
    # Of a set the first decode engine has its address.
    return str(engines[-1]["endpoint"])


def test_one_pod_proves_the_engine_and_leaves_the_volume(money: Money) -> None:
    site = money.rented
    money.rent("r1-one", 1, {"layout": {"tensor": 1}, "executor": "mp"})
    url = answered(site.start().result(40 * MINUTE))
    (pod,) = site.cloud.account.pods.values()
    (volume,) = site.cloud.account.volumes.values()
    assert pod.wanted["mounts"]["network"][0]["volumeId"] == volume["id"]
    money.one_process = money.ask(url, money.key("r1-one"))
    assert {tokens for _, tokens in money.one_process} == {TOKENS}
    ended = site.run(playbook="playbooks/teardown.yml")
    assert ended.status == 0, ended.output
    assert (site.cloud.account.clusters, site.cloud.account.pods) == ({}, {})
    assert list(site.cloud.account.volumes.values()) == [volume]


def test_a_cluster_serves_the_same_tokens_behind_dynamo_and_through_the_door(money: Money) -> None:
    site = money.rented
    clients = site.clone.directory / "clients.yml"
    words = [sys.executable, "-m", "vllm_ansible.console", "key", "add", "ann", "--file", clients]
    key = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    site.variables["door_clients_file"] = str(clients)
    dynamo = {
        "layout": {"data": 2, "tensor": 1},
        "front": "dynamo",
        "nodes": 1,
        "environment": {"VLLM_RUST_FRONTEND_PATH": FRONT_END},
    }
    money.rent("r1", 2, dynamo)
    ran = site.start().result(40 * MINUTE)
    url = answered(ran)
    (found,) = [one["values"] for one in ran.evidence("dynamo") if "repeats" in one["values"]]
    assert found["workers"] == 2 and found["events"] > 0
    # All repeats at one engine, by its own counter.
    assert len({one.index(max(one)) for one in found["repeats"]}) == 1, found
    assert money.ask(url, money.key("r1")) == money.one_process
    money.door = (url.replace("http://", "https://").rpartition(":")[0] + ":9443/v1", key)
    assert money.ask(*money.door) == money.one_process


def changes_nothing(money: Money) -> None:
    """A further run asks the cloud for lists alone, and no task changes anything."""
    site = money.rented
    site.cloud.log.clear()
    ran = site.run()
    answered(ran)
    assert ran.changed == []
    assert site.cloud.writes == []


def test_a_second_run_changes_nothing(money: Money) -> None:
    changes_nothing(money)


def test_one_pod_reads_and_the_other_writes_the_same_tokens(money: Money) -> None:
    """The same pods, and no new ones: prefill on one, decode on the other, NIXL between them."""
    site = money.rented
    arguments = {**money.engine["vllm_args"], "block_size": 32}
    one = {"layout": {"tensor": 1}, "vllm_args": arguments}
    money.rent(
        *("r1", 2),
        {**one, "name": "read", "role": "prefill", "hosts": ["r1-0"]},
        {**one, "name": "write", "role": "decode", "hosts": ["r1-1"]},
    )
    site.cloud.log.clear()
    ran = site.start("-e", "allow_disruption=true").result(40 * MINUTE)
    url = answered(ran)
    (found,) = [one["values"] for one in ran.evidence("pairs") if "pairs" in one["values"]]
    (pair,) = found["pairs"]
    print(json.dumps(found))
    for one in (pair, found["front"]):
        assert one["remote"] >= 0.9 * one["tokens"] > 100
        assert one["bytes"] > 1_000_000
        assert one["failed"] == 0
    assert site.cloud.writes == []
    assert money.ask(url, money.key("r1")) == money.one_process
    assert money.ask(*money.door) == money.one_process
    changes_nothing(money)


def test_dynamo_asks_prefill_then_decode_and_the_tokens_are_the_same(money: Money) -> None:
    """Both engines on the first pod: Dynamo and its engines meet on loopback."""
    site = money.rented
    one = {
        "layout": {"tensor": 1},
        "vllm_args": {**money.engine["vllm_args"], "block_size": 32},
        "hosts": ["r1-0"],
        "front": "dynamo",
        "environment": {"VLLM_RUST_FRONTEND_PATH": FRONT_END},
    }
    money.rent(
        *("r1", 2),
        {**one, "name": "read", "role": "prefill"},
        {**one, "name": "write", "role": "decode"},
    )
    site.cloud.log.clear()
    ran = site.start("-e", "allow_disruption=true").result(40 * MINUTE)
    url = answered(ran)
    (moved,) = [one["values"] for one in ran.evidence("pairs") if "pairs" in one["values"]]
    (routed,) = [one["values"] for one in ran.evidence("dynamo") if "repeats" in one["values"]]
    print(json.dumps([moved, routed]))
    for found in (moved["pairs"][0], moved["front"]):
        assert found["remote"] >= 0.9 * found["tokens"] > 100
        # vLLM's Rust front end counts no bytes.
        assert (found["bytes"], found["failed"]) == (0, 0)
    assert routed["workers"] == 2 and routed["events"] > 0
    assert site.cloud.writes == []
    assert money.ask(url, money.key("r1")) == money.one_process
    assert money.ask(*money.door) == money.one_process
    changes_nothing(money)


def test_teardown_leaves_an_empty_listing(money: Money) -> None:
    site = money.rented
    ran = site.run("-e", "runpod_remove_volume=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    account = site.cloud.account
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})
    (ended,) = ran.evidence("machines ended")
    assert ended["summary"].endswith("is deleted with all that was in it")
