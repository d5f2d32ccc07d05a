"""Data-parallel ranks of real engines on this machine: one group, and each asked by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, Ran, wait_until
from .conftest import Site, one_site
from .greedy import ASK
from .processes import identities, listeners, look

pytestmark = [pytest.mark.engine, pytest.mark.soak]
ARGUMENTS = {
    "max_model_len": 256,
    "max_num_seqs": 2,
    "dtype": "float32",
    "attention_backend": "CPU_MLA",
}
ENGINE: dict[str, Any] = {
    "name": "experts",
    "model": "random:deepseek-v3",
    "layout": {"data": 2, "tensor": 1},
    "vllm_args": {**ARGUMENTS, "kv_cache_memory_bytes": 1 << 26},
}
NAMES = ("experts-serve-0", "experts-serve-1")


class Ranks(Site):
    """A cluster of this machine with one engine of two data ranks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "ranks")
        self.variables |= {"accelerator_count": 2, "port_base": 27000, "engines": [ENGINE]}
        self.inventory = self.clone.inventory("flow", self.hosts, **self.variables)

    def with_engine(self, **changes: Any) -> Path:
        """Return an inventory of the same cluster whose engine differs."""
        engines = [{**ENGINE, **changes}]
        return self.clone.inventory("other", self.hosts, **{**self.variables, "engines": engines})

    @property
    def instances(self) -> list[str]:
        return [self.process(name)["instance"] for name in NAMES]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with one_site(tmp_path_factory, "ranks", Ranks) as made:
        yield made


def answered(ran: Ran) -> list[dict[str, Any]]:
    """Return what the gate keeps of each rank of the one engine, in a run that went well."""
    assert ran.status == 0, ran.output
    # The gate speaks again when a router stands.
    (engine,) = ran.evidence("serve")[-1]["values"]["engines"]
    found: list[dict[str, Any]] = engine["ranks"]
    return found


def ask(ranks: Ranks, endpoint: str, model: str) -> list[int]:
    """Return the tokens that one rank says while nobody asks the other."""
    url, key = endpoint.removesuffix("/v1"), ranks.state / "api_key"
    command = [sys.executable, "-c", ASK, url, str(key), model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tokens: list[int] = json.loads(done.stdout)["tokens"]
    return tokens


def kill(ranks: Ranks, name: str) -> None:
    """SIGKILL one rank's server and wait until the host knows."""
    process = ranks.process(name)["process"]
    os.kill(process["pid"], 9)
    wait_until(lambda: look(process["pid"]) is None, MINUTE, f"end of {name}")


def test_every_rank_answers_and_has_an_address_of_its_own(ranks: Ranks) -> None:
    found = answered(ranks.run())
    assert [one["rank"] for one in found] == [0, 1]
    assert [one["process"] for one in found] == list(NAMES)
    endpoints = [one["endpoint"] for one in found]
    assert endpoints == ["http://127.0.0.1:27020/v1", "http://127.0.0.1:27021/v1"]
    assert {("127.0.0.1", 27020), ("127.0.0.1", 27021)} <= listeners(ranks.cluster_dir)
    # A mixture of experts: they know of each other, and each asked alone takes the other along.
    for name in NAMES:
        argv = json.loads((ranks.cluster_dir / "processes" / f"{name}.json").read_text())["argv"]
        assert argv[argv.index("--data-parallel-rank") + 1] == name[-1]
    said = [ask(ranks, endpoint, "deepseek-v3") for endpoint in (*endpoints, *endpoints)]
    assert len(said[0]) == 32
    assert said == [said[0]] * 4


@pytest.mark.skipif(not Path("/usr/sbin/haproxy").exists(), reason="no haproxy on this machine")
def test_a_router_stands_before_the_ranks(ranks: Ranks) -> None:
    ran = ranks.run(playbook="playbooks/serve.yml")
    assert ran.status == 0, ran.output
    (told,) = ran.evidence("router")
    assert [one["proven"] for one in told["values"]["ranks"]] == [True, True]
    (engine,) = ran.evidence("serve")[-1]["values"]["engines"]
    assert engine["endpoint"] == told["values"]["url"] == "http://127.0.0.1:27015/v1"
    assert len(ask(ranks, engine["endpoint"], "deepseek-v3")) == 32


def test_the_second_run_changes_nothing(ranks: Ranks) -> None:
    before = identities(ranks.cluster_dir)
    ran = ranks.run()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert "changed=0" in ran.output
    assert identities(ranks.cluster_dir) == before


def test_a_rank_that_was_killed_is_told_and_the_group_starts_anew(ranks: Ranks) -> None:
    before = ranks.instances
    kill(ranks, NAMES[1])
    told = ranks.run(playbook="playbooks/status.yml")
    assert told.status == 2, told.output
    (status,) = told.evidence("status")
    assert f"{NAMES[1]}: was killed by signal 9 (SIGKILL)" in status["summary"]
    died = f"{NAMES[1]} was killed by signal 9 (SIGKILL)"
    assert "experts does not run" in told.failure["msg"]
    assert died in told.output
    ran = ranks.run()
    assert "experts had died and is started again" in ran.output
    assert died in ran.output
    found = answered(ran)
    assert [one["rank"] for one in found] == [0, 1]
    after = ranks.instances
    assert not set(before) & set(after), "a rank of a broken group was kept"


def test_a_changed_variable_is_one_restart_of_the_group_and_only_when_allowed(
    ranks: Ranks,
) -> None:
    before = ranks.instances
    longer = ranks.with_engine(vllm_args={**ENGINE["vllm_args"], "max_model_len": 512})
    failure = ranks.clone.run(longer).failure
    assert "engine experts is serving and would restart as a whole" in failure["msg"]
    assert ranks.instances == before
    answered(ranks.clone.run(longer, "-e", "allow_disruption=true"))
    assert not set(before) & set(ranks.instances)


def test_stop_leaves_no_rank_and_start_brings_both(ranks: Ranks) -> None:
    inventory = ranks.with_engine(vllm_args={**ENGINE["vllm_args"], "max_model_len": 512})
    ran = ranks.clone.run(inventory, playbook="playbooks/stop.yml")
    assert ran.status == 0, ran.output
    assert listeners(ranks.cluster_dir) == set()
    assert len(answered(ranks.clone.run(inventory, playbook="playbooks/start.yml"))) == 2


def test_ranks_of_a_dense_model_start_alone(ranks: Ranks) -> None:
    """They have nothing in common: one that was killed leaves the other serving."""
    dense = ranks.with_engine(model="random:llama")
    found = answered(ranks.clone.run(dense, "-e", "allow_disruption=true"))
    said = [ask(ranks, one["endpoint"], "llama") for one in found]
    assert said[0] == said[1]
    before = ranks.instances
    kill(ranks, NAMES[1])
    assert ask(ranks, found[0]["endpoint"], "llama") == said[0]
    assert len(answered(ranks.clone.run(dense))) == 2
    first, second = ranks.instances
    assert first == before[0], "a rank that served was started again"
    assert second != before[1]


def test_teardown_leaves_nothing(ranks: Ranks) -> None:
    ranks.inventory = ranks.with_engine(model="random:llama")
    ranks.leaves_nothing()
