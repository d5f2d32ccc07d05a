"""One served cluster on this machine and one over two lab hosts, each brought up once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.row_end import OF_ROW

from .clone import Clone, Ran, Running
from .greedy import ASK
from .processes import end_all, identities, of_cluster, untouched
from .two_hosts import TwoHosts

CHAT = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "port": 8260,
    "vllm_args": {"max_model_len": 2048, "dtype": "float32", "kv_cache_memory_bytes": 1 << 28},
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}
EXPERTS = {
    "name": "experts",
    "model": "random:deepseek-v3",
    "executor": "mp",
    "port": 8261,
    "vllm_args": {
        "max_model_len": 1024,
        "dtype": "float32",
        "attention_backend": "CPU_MLA",
        "kv_cache_memory_bytes": 1 << 28,
    },
}
HERE = {"here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}


def read_json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


class Site:
    """One cluster of this machine, and the clone that operates it."""

    serves = False

    def __init__(self, directory: Path, name: str = "flow") -> None:
        self.directory, self.name = directory, name
        self.cluster_dir = directory / "cluster"
        self.clone = Clone(directory / "clone")
        self.variables: dict[str, Any] = {
            "cluster_name": name,
            "cluster_dir": str(self.cluster_dir),
            "accelerator": "cpu",
            # Room for one engine more: this number shares out the cores, so it must not change.
            "accelerator_count": 3,
            "privileges": "none",
            "port_base": 26000,
            "engines": [CHAT, EXPERTS],
            # 15 s of processor time for each cluster; test_computation.py has it.
            "vllm_reference_gib": 0,
        }
        self.hosts = HERE
        self.inventory = self.clone.inventory("flow", self.hosts, **self.variables)

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        return self.clone.start(self.inventory, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        ran = self.clone.run(self.inventory, *arguments, playbook=playbook)
        self.serves |= ran.status == 0 and not arguments and playbook == "site.yml"
        return ran

    def process(self, name: str) -> dict[str, Any]:
        """Return what the host recorded of the present start of a process."""
        return read_json(self.cluster_dir / "processes" / f"{name}.state.json")

    def pid(self, name: str) -> int:
        return int(self.process(name)["process"]["pid"])

    def task(self, name: str) -> dict[str, Any]:
        """Return the status of a background task."""
        return read_json(self.cluster_dir / "tasks" / f"{name}.json")

    @property
    def python(self) -> str:
        """The Python of the environment that the engines were started from."""
        ray = read_json(self.cluster_dir / "processes" / "chat-ray.json")["argv"][0]
        return str(Path(ray).with_name("python"))

    @property
    def key(self) -> str:
        return self.secrets["api_key"]

    @property
    def secrets(self) -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in sorted(self.state.iterdir())}

    @property
    def run_dir(self) -> Path:
        return Path(os.sep, "tmp", f"vllm-{self.name}-{os.getuid()}")

    @property
    def state(self) -> Path:
        return self.clone.directory / "state" / self.name

    def changes_nothing(self) -> tuple[Ran, Ran]:
        """Run all of it again and look at it: the same processes. Return both runs."""
        before = identities(self.cluster_dir)
        ran = self.run()
        assert ran.status == 0, ran.output
        assert ran.changed == []
        assert "changed=0" in ran.output
        untouched(self.cluster_dir, before)
        looked = self.run(playbook="playbooks/status.yml")
        assert looked.status == 0, looked.output
        return ran, looked

    def leaves_nothing(self) -> None:
        """Take it down: no process, no record of one and no directory of the run is left."""
        ran = self.run(playbook="playbooks/teardown.yml")
        assert ran.status == 0, ran.output
        assert of_cluster(self.cluster_dir) == []
        assert not list((self.cluster_dir / "processes").glob("*"))
        assert not self.run_dir.exists()


SomeSite = TypeVar("SomeSite", bound=Site)


@contextlib.contextmanager
def one_site(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], SomeSite]
) -> Iterator[SomeSite]:
    """Yield a cluster, not yet brought up; nothing of it stays behind, unless it is kept.

    Whoever works on these tests names a directory to keep it in, and it is there the next time.
    """
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = make(Path(kept) if kept else factory.mktemp(name))
    yield made
    if not kept:
        end_all(made.cluster_dir)
        shutil.rmtree(made.cluster_dir, ignore_errors=True)
        shutil.rmtree(made.run_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a cluster that may not have been brought up yet; nothing of it stays behind.

    Whoever works on these tests names a directory to keep it in, and it is there the next time.
    """
    if kept := os.environ.get("VLLM_ANSIBLE_FLOW_DIR"):
        return Site(Path(kept))
    # Of its own: what a killed session has left in /tmp must not be taken for this one's.
    made = Site(tmp_path_factory.mktemp("flow"), f"flow{os.getpid()}")
    OF_ROW.callback(shutil.rmtree, made.run_dir, ignore_errors=True)
    OF_ROW.callback(shutil.rmtree, made.cluster_dir, ignore_errors=True)  # a check makes none
    OF_ROW.callback(end_all, made.cluster_dir)
    return made


@pytest.fixture(scope="session")
def served(site: Site) -> Site:
    """Return the cluster with both engines serving, as its bring-up has left it."""
    if not site.serves:
        ran = site.run()
        assert ran.status == 0, ran.output
    return site


def greedy_texts(site: Site) -> dict[str, Any]:
    """Return what each engine of this machine says, always with its likeliest token."""
    texts = {}
    for engine in site.variables["engines"]:
        url, name = f"http://127.0.0.1:{engine['port']}", engine["model"].partition(":")[2]
        asked = subprocess.run(
            [sys.executable, "-c", ASK, url, site.state / "api_key", name],
            capture_output=True,
            text=True,
            check=True,
        )
        texts[engine["name"]] = json.loads(asked.stdout)
    return texts


@pytest.fixture(scope="session")
def one_process_texts(served: Site) -> dict[str, Any]:
    """Return the texts of engines of a single rank, kept after these engines are taken down."""
    return greedy_texts(served)


@pytest.fixture(scope="session")
def two_hosts(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> TwoHosts:
    """Return two hosts on which nothing was brought up yet; nothing of them stays behind."""
    if kept := os.environ.get("VLLM_ANSIBLE_FLOW_DIR"):
        return TwoHosts(Path(kept) / "two")
    made = TwoHosts(tmp_path_factory.mktemp("two"))
    OF_ROW.callback(made.lab.down)
    return made


@pytest.fixture(scope="session")
def two_hosts_served(two_hosts: TwoHosts) -> TwoHosts:
    """Return the hosts with both engines serving."""
    ran = two_hosts.run()
    assert ran.status == 0, ran.output
    return two_hosts
