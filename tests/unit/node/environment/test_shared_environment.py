"""The role environment on hosts that share a directory, or should; real plays, a uv of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ...fake_uv import UV, VERSIONS

ROOT = Path(__file__).parents[4]


class Site:
    """Hosts that are all this machine, each with a cluster's directory of its own."""

    def __init__(self, play: Any, directory: Path) -> None:
        self.play, self.directory = play, directory
        self.log = directory / "log"
        # Where environments are packed for a path, all hosts but this one have the same.
        self.elsewhere = ""
        self.lock = directory / "lock.txt"
        self.lock.write_text("ray==2.60.0\nvllm-cpu==0.32.0\n")
        self.python = directory / "python"
        self.python.write_text(f"#!/bin/sh\necho '{json.dumps(VERSIONS)}'\n")
        self.python.chmod(0o755)

    def run(
        self,
        *hosts: str,
        flags: tuple[str, ...] = (),
        form: str = "tree",
        again: str = "",
        **shared: str,
    ) -> Any:
        """Play the role on hosts, and after it one of its files of tasks again."""
        for host in hosts:
            (self.cluster_dir(host, form) / "environments").mkdir(parents=True, exist_ok=True)
            uv = self.cluster_dir(host, form) / "tools/bin/uv"
            uv.parent.mkdir(parents=True, exist_ok=True)
            uv.write_text(UV)
            uv.chmod(0o755)
        common = {
            "engine_build": [],
            "engine_python": "/bin/python3",
            "engine_source": "environment",
            "environment_compile_bytecode": False,
            "environment_requirements": str(self.lock),
            "environment_packages": [str(ROOT / "packages/vllm_name")],
            "sources_environment": {
                "FAKE_LOG": str(self.log),
                "FAKE_PYTHON": str(self.python),
                "FAKE_FAILURE": "",
            },
        }
        places = {host: shared.get(host, str(self.directory / "shared")) for host in hosts}
        more = {"name": "again", "include_role": {"name": "environment", "tasks_from": again}}
        return self.play(
            [
                {"name": "the role", "include_role": {"name": "environment"}},
                *([more] if again else []),
            ],
            {
                host: {
                    **common,
                    "environment_shared_dir": places[host],
                    "environment_shared_form": form,
                    "site_host": {
                        "cluster_dir": str(self.cluster_dir(host, form)),
                        "accelerator": "cpu",
                        "architecture": "x86_64",
                    },
                }
                for host in hosts
            },
            environment={"ANSIBLE_ROLES_PATH": str(ROOT / "roles")},
            flags=flags,
        )

    def cluster_dir(self, host: str, form: str) -> Path:
        """Return a directory of the host's own; what is packed is good for one path on all."""
        own = form == "tree" or host == self.elsewhere
        return self.directory / (host if own else "cluster")

    def builds(self) -> int:
        return self.log.read_text().count("pip sync") if self.log.exists() else 0


@pytest.fixture
def site(play: Any, tmp_path: Path) -> Site:
    return Site(play, tmp_path)


def changed(played: Any) -> list[str]:
    return [
        f"{name.removeprefix('environment : ')} ({host})"
        for name, hosts in played.tasks.items()
        for host, result in hosts.items()
        if result.get("changed")
    ]


def gate(played: Any) -> dict[str, Any]:
    (found,) = played.tasks["environment : Check that every host has the same environment"].values()
    one: dict[str, Any] = found
    return one


def test_one_host_builds_and_every_other_one_imports_before_it_counts(site: Site) -> None:
    looked = changed(site.run("h1", "h2", flags=("--check",)))
    assert "Start to build (h1)" in looked and "Start to take it (h2)" in looked
    assert site.builds() == 0 and not (site.directory / "shared").exists()

    first = site.run("h1", "h2")
    assert gate(first)["evidence"]["values"]["hosts"] == 2
    assert site.builds() == 1
    # One more, and one that does not see the directory, which builds nothing and says so.
    again = site.run("h1", "h2", "h3", "h4", h4=str(site.directory / "not-mounted"))
    assert changed(again) == ["Start to take it (h3)"]
    refused = again.tasks["environment : Start to take it"]["h4"]
    assert refused["failed"]
    assert refused["msg"].startswith("this host cannot use the environment that the first one")
    assert refused["fix"].startswith("mount environment_shared_dir on every host")
    assert site.builds() == 1


@pytest.mark.parametrize("tasks", ["build", "prove"])
def test_what_a_killed_run_had_begun_may_end_before_it_is_taken_up(site: Site, tasks: str) -> None:
    """Between the look and the start: `'' cannot name a task` met the second run of a host."""
    played = site.run("h1", again=tasks)
    waits = "Wait until the environment is built", "Wait until it was taken and imported"
    found = played.tasks["environment : " + waits[tasks == "prove"]]["h1"]
    assert not found.get("failed"), found
    assert found["msg"] == "Nothing was started: it is there already."
    assert site.builds() == 1


def test_what_is_packed_is_built_once_and_taken_by_hosts_that_have_none(site: Site) -> None:
    looked = changed(site.run("h1", form="copy", flags=("--check",)))
    assert "Start to build (h1)" in looked and not (site.directory / "shared").exists()
    site.run("h1", form="copy")
    # Packed for one path it is refused for another, as of a node of a badly made inventory.
    site.elsewhere = "h2"
    again = site.run("h1", "h2", form="copy")
    assert changed(again) == []
    refused = again.tasks["environment : Start to take it"]["h2"]
    assert refused["failed"] and refused["msg"] == "this host finds no packed environment to take"
    assert refused["found"].startswith(f"one for {site.directory}/cluster/environments/")
    assert "one cluster_dir" in refused["fix"]
    (built,) = (site.directory / "cluster/environments").glob("*/manifest.json")
    (record,) = (site.directory / "shared/environments").glob("*.copy.json")
    assert json.loads(record.read_text())["directory"] == str(built.parent)
    # A machine in the place of the first, which has nothing.
    (site.directory / "cluster").rename(site.directory / "before")
    taken = site.run("h3", form="copy")
    assert (
        "Start to build (h3)" in changed(taken) and gate(taken)["evidence"]["values"]["hosts"] == 1
    )
    assert built.exists() and site.builds() == 1
