"""The role wheels, played for real: a compiled package is built once, kept, and handed on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.environment import own_wheels, uv_command
from vllm_ansible.node.process import background

from .project import make

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("git")), reason="needs a C compiler and git"
)


class Site:
    """Hosts that are all this machine, each with a cluster's directory of its own."""

    def __init__(self, play: Any, directory: Path) -> None:
        self.play, self.directory = play, directory
        self.repository = directory / "repository"
        self.cache = directory / "cache"

    def arguments(self, revision: str, *hosts: str, **build: Any) -> dict[str, Any]:
        for host in hosts:
            uv = self.place(host) / "tools/bin/uv"
            if not uv.exists():
                uv.parent.mkdir(parents=True)
                uv.symlink_to(Path(sys.executable).with_name("uv"))
        name = "vllm-ansible-answer"
        entry = {"name": name, "source": str(self.repository), "revision": revision, **build}
        common = {
            "engine_build": [entry],
            "engine_python": sys.executable,
            "sources_environment": {"UV_OFFLINE": "1"},
            "wheels_cache_dir": str(self.cache),
        }
        facts = {"accelerator": "cpu", "architecture": os.uname().machine}
        return {
            "tasks": [{"name": "the role", "include_role": {"name": "wheels"}}],
            "hosts": {
                host: {**common, "site_host": {**facts, "cluster_dir": str(self.place(host))}}
                for host in hosts
            },
            "environment": {"ANSIBLE_ROLES_PATH": str(ROOT / "roles")},
        }

    def run(self, revision: str, *hosts: str, flags: tuple[str, ...] = (), **build: Any) -> Any:
        return self.play(**self.arguments(revision, *hosts, **build), flags=flags)

    def place(self, host: str) -> Path:
        return self.directory / "hosts" / host

    def wheels(self, host: str) -> list[Path]:
        return sorted(self.place(host).glob("wheels/*/*.whl"))

    def task(self, host: str) -> dict[str, Any]:
        return background.look(str(self.place(host) / "tasks"), "wheels")


@pytest.fixture
def site(play: Any, tmp_path: Path) -> Site:
    return Site(play, tmp_path)


def evidence(played: Any) -> dict[str, Any]:
    (one,) = played.tasks["wheels : Check that every host has its wheels"].values()
    assert "evidence" in one, one
    found: dict[str, Any] = one["evidence"]
    return found


def changed(played: Any) -> list[str]:
    return [
        f"{name.removeprefix('wheels : ')} ({host})"
        for name, hosts in played.tasks.items()
        for host, result in hosts.items()
        if result.get("changed")
    ]


def test_a_package_is_built_once_and_reused_by_later_runs_and_new_hosts(site: Site) -> None:
    revision = make(site.repository)
    looked = site.run(revision, "h1", "h2", flags=("--check",), settings={"a": "b"})
    assert "Start to build (h1)" in changed(looked)
    assert not any(name.endswith("(h2)") for name in changed(looked))
    assert not site.cache.exists() and not (site.place("h1") / "wheels").exists()

    first = site.run(revision, "h1", "h2", settings={"a": "b"}, environment={"MAX_JOBS": "3"})
    told = evidence(first)
    assert told["summary"].startswith("vllm-ansible-answer 1.0 ("), told
    assert ": built on h1 in " in told["summary"] and told["summary"].endswith("on 2 host(s)")
    (built,), (taken,) = site.wheels("h1"), site.wheels("h2")
    assert built.read_bytes() == taken.read_bytes()
    assert any(name.endswith(".so") for name in zipfile.ZipFile(built).namelist())
    assert site.task("h2")["state"] == "absent"
    log = next(site.place("h1").glob("wheels/*.log")).read_text()
    assert "settings {'a': 'b'} jobs 3" in log

    again = site.run(revision, "h1", "h2", settings={"a": "b"}, environment={"MAX_JOBS": "3"})
    assert changed(again) == []
    assert ": there already, on 2" in evidence(again)["summary"]

    # Another cluster, or a machine that was rented later; the repository may be gone by then.
    site.repository.rename(site.directory / "elsewhere")
    fresh = site.run(revision, "h3", settings={"a": "b"}, environment={"MAX_JOBS": "3"})
    assert ": kept from an earlier build, on 1" in evidence(fresh)["summary"]
    assert site.wheels("h3")[0].read_bytes() == built.read_bytes()
    assert site.task("h3")["state"] == "absent"
    assert answer(site, "h3") == 42


def answer(site: Site, host: str) -> int:
    """Install what a host has as its environment would, by hash, and ask the compiled package."""
    place = site.directory / "installed"
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    (record,) = site.place(host).glob("wheels/*/wheel.json")
    wheel = {"name": "vllm-ansible-answer", "key": json.loads(record.read_text())["key"]}
    records = own_wheels.built_records(str(site.place(host)), [wheel])
    packages = own_wheels.write_packages(place, [], list(records.values()))
    subprocess.run(
        [*uv_command.sync_command(uv, place, [str(packages)], [], ""), "--offline"], check=True
    )
    program = "import vllm_ansible_answer; print(vllm_ansible_answer.answer())"
    said = subprocess.run([f"{place}/bin/python", "-c", program], check=True, capture_output=True)
    return int(said.stdout)


def test_another_revision_is_built_anew_and_a_damaged_wheel_is_noticed(site: Site) -> None:
    first = make(site.repository)
    site.run(first, "h1")
    second = make(site.repository, version="1.1", answer="43")
    played = site.run(second, "h1", "h2")
    assert "1.1" in evidence(played)["summary"] and "built on h1" in evidence(played)["summary"]
    assert [path.name.split("-")[1] for path in site.wheels("h1")] == ["1.1"]
    kept = sorted(path.name.split("-")[1] for path in site.cache.glob("*/*.whl"))
    assert kept == ["1.0", "1.1"]

    damaged = next(site.cache.glob("*/*-1.1-*.whl"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + b"?")
    rebuilt = site.run(second, "h3")
    assert "built on h3" in evidence(rebuilt)["summary"]
    assert [str(damaged) in wrong for wrong in evidence(rebuilt)["values"]["damaged"]] == [True]
    # What was built again is not the same to the byte: hosts with the earlier one take it, too.
    assert damaged.read_bytes() == site.wheels("h3")[0].read_bytes() != content
    evidence(site.run(second, "h1", "h3"))
    assert damaged.read_bytes() == site.wheels("h1")[0].read_bytes()


def test_a_build_that_fails_names_the_first_error_of_the_compiler_and_the_log(site: Site) -> None:
    revision = make(site.repository, answer="no_such_thing")
    played = site.run(revision, "h1", "h2")
    waited = played.tasks["wheels : Wait until the wheels are built"]["h1"]
    assert waited["failed"]
    assert waited["msg"] == "wheels failed: vllm-ansible-answer could not be built."
    assert waited["found"].startswith("answer.c:2:"), waited
    assert "error:" in waited["found"] and "no_such_thing" in waited["found"]
    log = Path(waited["where"])
    assert waited["found"] in log.read_text()
    assert site.wheels("h1") == [] and not list(site.cache.glob("*/*.whl"))


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_run_that_is_killed_leaves_the_build_going_on_and_a_killed_build_starts_again(
    site: Site,
) -> None:
    revision = make(site.repository)
    go = site.directory / "go"
    build = {"environment": {"WAIT_FOR": str(go)}}
    running = site.play.start(**site.arguments(revision, "h1", **build), own_session=True)
    wait_until(lambda: "waiting" in str(site.task("h1")["progress"]), "progress of the build")
    progress = site.task("h1")["progress"]
    assert (progress["done"], progress["total"], progress["unit"]) == (1, 3, "steps")
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    status = site.task("h1")
    assert status["state"] == "running"

    # The host itself loses it: half of a build is left.
    session = status["process"]["pid"]
    os.kill(status["launcher"]["pid"], signal.SIGKILL)
    os.killpg(os.getsid(session), signal.SIGKILL)
    wait_until(lambda: site.task("h1")["state"] == "died", "the end of the build")
    assert list(site.place("h1").glob("wheels/*.build"))
    go.touch()
    played = site.run(revision, "h1", **build)
    assert "built on h1" in evidence(played)["summary"]
    assert len(site.wheels("h1")) == 1 and not list(site.place("h1").glob("wheels/*.build"))
    record = json.loads(next(site.cache.glob("*/wheel.json")).read_text())
    assert record["revision"] == revision
