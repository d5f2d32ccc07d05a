"""The engine's environment is what the lock names, on every host, and usable by the service."""

import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

ROOT = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"])
LOCK = ROOT / "requirements" / "engine-cpu.txt"
BUILT = "vllm-ansible-answer"
ANSWER = "import json, vllm_ansible_answer as a; print(json.dumps([a.answer(), a.__file__]))"
INSTALLED = """
import importlib.metadata as m, json, re
names = {one: re.sub("[-_.]+", "-", one.metadata["Name"].lower()) for one in m.distributions()}
print(json.dumps({name: one.version for one, name in names.items()}))
"""
# What vLLM does with its platform plugins, without the seconds that importing vLLM takes.
PLATFORMS = """
import importlib.metadata as m, json
print(json.dumps([one.load()() for one in m.entry_points(group="vllm.platform_plugins")]))
"""


@pytest.fixture
def directory(host: Host, cluster_dir: str) -> str:
    manifests = host.check_output(f"ls -d {cluster_dir}/environments/*/manifest.json").split()
    assert len(manifests) == 1
    return str(Path(manifests[0]).parent)


def test_exactly_the_locked_versions_are_installed(
    directory: str, python: Callable[..., Any]
) -> None:
    installed = python(INSTALLED, interpreter=f"{directory}/bin/python")
    locked = dict(
        re.findall(r"^([a-z0-9][a-z0-9._-]*)(?:\[.*\])?==([^ ]+)", LOCK.read_text(), re.M)
    )
    assert len(locked) > 100
    own = {
        tomllib.loads(path.read_text())["project"]["name"]
        for path in ROOT.glob("packages/*/pyproject.toml")
    }
    assert "vllm-cpu-ray" in own
    own.add(BUILT)
    assert {name: version for name, version in installed.items() if name not in own} == {
        re.sub("[-_.]+", "-", name): version for name, version in locked.items()
    }
    assert own <= installed.keys()


def test_the_service_finds_the_platform_that_runs_over_several_hosts(
    host: Host, directory: str
) -> None:
    said = host.check_output(
        "cd / && runuser -u vllm-molecule -- %s -c %s", f"{directory}/bin/python", PLATFORMS
    )
    # The other plugin binds torch's store and is no platform: it answers with nothing.
    assert [name for name in json.loads(said) if name] == ["vllm_cpu_ray.platform.CpuRayPlatform"]


def test_what_was_built_from_source_is_in_it_and_the_service_runs_it(
    host: Host, directory: str, cluster_dir: str
) -> None:
    said = host.check_output(
        "cd / && runuser -u vllm-molecule -- %s -c %s", f"{directory}/bin/python", ANSWER
    )
    answer, file = json.loads(said)
    assert answer == 42 and file.startswith(directory)
    manifest = json.loads(host.file(f"{directory}/manifest.json").content_string)
    (record,) = host.check_output(f"ls {cluster_dir}/wheels/*/wheel.json").split()
    digest = json.loads(host.file(record).content_string)["sha256"]
    assert manifest["wheels"] == {BUILT: digest}


def test_the_service_cannot_change_what_it_runs(host: Host, directory: str) -> None:
    for path in (directory, f"{directory}/bin", f"{directory}/bin/python"):
        found = host.file(path)
        assert (found.user, found.mode & 0o022) == ("root", 0), path
    assert host.run("runuser -u vllm-molecule -- touch %s", f"{directory}/bin/new").rc != 0


def test_nothing_builds_any_more(host: Host, cluster_dir: str, directory: str) -> None:
    assert not host.process.filter(comm="uv")
    names = host.check_output(f"ls {cluster_dir}/environments").split()
    digest = Path(directory).name
    assert names == [digest, f"{digest}.txt"]
