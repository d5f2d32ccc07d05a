"""RunPod's stages of money with real engines: one pod proves the engine, then Dynamo on a cluster.

The API is emulated, its pods are hosts of a lab without systemd; vLLM, Dynamo, etcd and NATS are
real. The network volume exists at the emulator alone: nothing is mounted.
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

    def rent(self, cluster: str, pods: int, **more: Any) -> None:
        """Write what the next commands rent and serve."""
        engine = {**self.engine, **more}
        wanted = {"cluster_name": cluster, "node_count": pods, "engines": [engine]}
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
        engine = {**engine, "nodes": 1}
        engine["vllm_args"] = {**engine["vllm_args"], "kv_cache_memory_bytes": 1 << 28}
        # As an image with the official wheel has it.
        made.pods.files[FRONT_END] = programs(directory).front_end
        yield Money(made, engine)


def answered(ran: Ran) -> str:
    """Return where the engine of a run answers that went well."""
    assert ran.status == 0, ran.output[-20_000:]
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")
    return str(engine["endpoint"])


def test_one_pod_proves_the_engine_and_leaves_the_volume(money: Money) -> None:
    site = money.rented
    money.rent("r1-one", 1, layout={"tensor": 1}, executor="mp")
    url = answered(site.start().result(25 * MINUTE))
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
    money.rent(
        *("r1", 2),
        layout={"data": 2, "tensor": 1},
        front="dynamo",
        environment={"VLLM_RUST_FRONTEND_PATH": FRONT_END},
    )
    ran = site.start().result(25 * MINUTE)
    url = answered(ran)
    (found,) = [one["values"] for one in ran.evidence("dynamo") if "repeats" in one["values"]]
    assert found["workers"] == 2 and found["events"] > 0
    # All repeats at one engine, by its own counter.
    assert len({one.index(max(one)) for one in found["repeats"]}) == 1, found
    assert money.ask(url, money.key("r1")) == money.one_process
    door = url.replace("http://", "https://").rpartition(":")[0] + ":9443/v1"
    assert money.ask(door, key) == money.one_process


def test_a_second_run_changes_nothing(money: Money) -> None:
    site = money.rented
    site.cloud.log.clear()
    ran = site.run()
    answered(ran)
    assert ran.changed == []
    assert site.cloud.writes == []


def test_teardown_leaves_an_empty_listing(money: Money) -> None:
    site = money.rented
    ran = site.run("-e", "runpod_remove_volume=true", playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    account = site.cloud.account
    assert (account.clusters, account.pods, account.volumes) == ({}, {}, {})
    (ended,) = ran.evidence("machines ended")
    assert ended["summary"].endswith("is deleted with all that was in it")
