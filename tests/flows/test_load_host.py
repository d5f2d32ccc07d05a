"""The load of the benchmark and the ramp comes from a host of its own, through the door."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.standin import ENGINES, environment

from .clone import Ran
from .conftest import HERE, Site
from .processes import end_all

pytestmark = pytest.mark.soak
DOOR, KEY = 9657, "loading-alice-4712"
CHAT: dict[str, Any] = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "port": 8281,
    "executor": "mp",
    "vllm_args": {
        "max_model_len": 512,
        "dtype": "float32",
        "enforce_eager": True,
        "kv_cache_memory_bytes": 1 << 26,
        "max_num_seqs": 4,
    },
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}
SMALL = json.dumps(
    {
        "benchmark_ramp_users": [1, 4],
        "benchmark_ramp_rounds": 1,
        "benchmark_ramp_least_requests": 8,
        "benchmark_input_tokens": 16,
        "benchmark_output_tokens": 16,
    }
)


class Loaded(Site):
    """An engine behind a door, and a second directory of this machine as the host of the load."""

    def __init__(self, directory: Path, engine: str) -> None:
        super().__init__(directory, "lod")
        self.real = engine == "vllm"
        self.loader = directory / "loader"
        clients = directory / "clients.yml"
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        clients.write_text(yaml.safe_dump({"clients": {"alice": {"key_sha256": digest}}}))
        self.key = directory / "alice"
        self.key.write_text(f"{KEY}\n")
        for path in (clients, self.key):
            path.chmod(0o600)
        self.variables = {
            **self.variables,
            "accelerator_count": 1,
            "port_base": 28700,
            "door_clients_file": str(clients),
            "door_port": DOOR,
            "engines": [CHAT],
            **({} if self.real else environment(directory / "environment")),
        }
        self.inventory = self.clone.inventory("lod", HERE, **self.variables)
        hosts = self.inventory / "hosts.yml"
        content = yaml.safe_load(hosts.read_text())
        content["all"]["children"]["load"] = {
            "hosts": {"loader": {**HERE["here"], "cluster_dir": str(self.loader)}}
        }
        hosts.write_text(yaml.safe_dump(content))

    def measure(self, *arguments: str, playbook: str = "playbooks/benchmark.yml") -> Ran:
        return self.run("-vvv", *arguments, playbook=playbook)

    def written(self) -> list[Path]:
        """Return all files of the loading host but its environment, and the run's records."""
        roots = [self.loader / name for name in ("load", "tasks", "evidence", "secrets")]
        roots += [self.cluster_dir / name for name in ("tasks", "evidence")]
        return [one for root in roots for one in root.rglob("*") if one.is_file()]


@pytest.fixture(scope="module", params=ENGINES)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    made = Loaded(tmp_path_factory.mktemp("load"), request.param)
    try:
        ran = made.run("--skip-tags", "verify,benchmark", playbook="site.yml")
        assert ran.status == 0, ran.output
        yield made
    finally:
        end_all(made.cluster_dir)
        end_all(made.loader)
        for path in (made.cluster_dir, made.loader, made.run_dir):
            shutil.rmtree(path, ignore_errors=True)


def test_the_engine_s_own_address_is_asked_with_the_engines_key(loaded: Loaded) -> None:
    ran = loaded.measure()
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("benchmark")
    (figures,) = evidence["values"]["engines"]
    assert figures["generator"]["host"] == "loader"
    assert figures["generator"]["url"].endswith(f":{CHAT['port']}")
    assert f"load from loader to {figures['generator']['url']}" in evidence["summary"]
    # It ran there, from an environment of that host.
    status = json.loads((loaded.loader / "tasks/benchmark-chat.json").read_text())
    assert status["state"] == "done"
    assert str(loaded.loader / "environments") in evidence_of(loaded)["command"]
    assert not (loaded.cluster_dir / "tasks/benchmark-chat.json").exists()
    # Nothing of the cluster's keys but the one that it asks with.
    secrets = {path.name for path in (loaded.loader / "secrets").iterdir()}
    assert secrets == {"benchmark_key"}
    keys = set(loaded.secrets.values())
    assert not [key for key in keys if key in ran.output]
    again = loaded.measure()
    assert again.status == 0, again.output
    assert again.changed == []


def evidence_of(loaded: Loaded) -> dict[str, Any]:
    path = loaded.cluster_dir / "evidence/benchmark-chat.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_door_is_asked_with_the_key_of_a_client_which_stands_nowhere(loaded: Loaded) -> None:
    ran = loaded.measure("-e", f"benchmark_load_key_file={loaded.key}")
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("benchmark")
    (figures,) = evidence["values"]["engines"]
    assert figures["generator"]["url"].startswith("https://")
    assert figures["generator"]["url"].endswith(f":{DOOR}")
    log = (loaded.cluster_dir / "logs/door.log").read_text()
    assert log.count('"client": "alice"') >= figures["requests"]
    told = [path for path in loaded.written() if KEY in path.read_text(errors="replace")]
    assert told == [loaded.loader / "secrets/benchmark_key"]
    assert KEY not in ran.output
    assert not list(loaded.state.glob("load-*"))


def test_without_the_host_nothing_is_measured_from_the_engine_s_own(loaded: Loaded) -> None:
    ran = loaded.run("--limit", "here", playbook="playbooks/benchmark.yml")
    failure = ran.failure
    assert "loader was prepared by this run" in failure["msg"]
    assert "--limit" in failure["fix"]


def test_a_ramp_samples_the_client_on_its_own_host(loaded: Loaded) -> None:
    if not loaded.real:
        pytest.skip("the stand-in's client has none of the options of a ramp")
    ran = loaded.measure(
        *("-e", SMALL, "-e", f"benchmark_load_key_file={loaded.key}"), playbook="playbooks/ramp.yml"
    )
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("ramp")
    (found,) = evidence["values"]["engines"]
    assert (found["generator"]["host"], found["generator"]["shared"]) == ("loader", False)
    figures = found["steps"][-1]["figures"]
    assert figures["client_cpus"]["median"] > 0
    assert figures["client_host_cpus"]["median"] >= 1
    assert figures["running_most"]["median"] >= 1
    assert "load from loader to https://" in evidence["summary"]
    page = (ran.directory / "ramp-chat.html").read_text()
    assert "ran on loader, a host of its own" in page
    assert KEY not in ran.output + page
