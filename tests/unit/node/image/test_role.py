"""The role environment with an image, played for real over two hosts that are this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import port_base
from vllm_ansible.node.image.tool import Tool
from vllm_ansible.node.process import background

from .conftest import KIND, containers_tool

ROOT = Path(__file__).parents[4]
SPREAD = "environment : See which hosts need the tar of the image"
COPY = "environment : Copy it from the controller, once"
GATE = "environment : Check that every host has the same environment"


class Site:
    """Two hosts that share this machine's podman; each has a cluster's directory of its own."""

    def __init__(self, play: Any, directory: Path, archive: Path, sha256: str) -> None:
        self.play, self.directory = play, directory
        self.environment = {"ANSIBLE_ROLES_PATH": str(ROOT / "roles")}
        self.variables = {
            **{"engine_source": "image", "engine_image_file": str(directory / "engine.tar")},
            **{"engine_image": "", "engine_image_sha256": sha256, "engine_image_packages": []},
            **{"engine_image_mounts": [], "engine_image_privileged": False},
            **{"engine_image_ipc": "", "engines": []},
            **{"container_tool": KIND, "sources_environment": {}, "port_base": port_base()},
        }
        (directory / "engine.tar").symlink_to(archive)
        hosts = [
            {"name": name, "address": f"127.0.0.{number}", "cluster_dir": str(directory / name)}
            for number, name in enumerate(("h1", "h2"), 1)
        ]
        more = {"accelerator": "cpu", "privileges": "none", "service_user": "root"}
        self.hosts: dict[str, dict[str, Any]] = {
            one["name"]: {
                "site_host": {**one, **more, "models_dir": f"{one['cluster_dir']}/models"},
                "site_hosts": hosts,
            }
            for one in hosts
        }
        for one in hosts:
            secrets = Path(one["cluster_dir"], "secrets")
            secrets.mkdir(parents=True)
            (secrets / "ray_token").write_text("a key of the cluster")
            Path(one["cluster_dir"], "models").mkdir()

    def run(self, *flags: str, **variables: Any) -> Any:
        common = {**self.variables, **variables}
        return self.play(
            tasks=[{"name": "the role", "include_role": {"name": "environment"}}],
            hosts={name: {**common, **own} for name, own in self.hosts.items()},
            environment=self.environment,
            flags=flags,
        )


@pytest.fixture
def site(play: Any, tool: Tool, archive: Path, wanted: dict[str, Any], tmp_path: Path) -> Site:
    return Site(play, tmp_path, archive, wanted["sha256"])


def changes(played: Any) -> list[str]:
    return [
        f"{task} on {host}"
        for task, hosts in played.tasks.items()
        for host, result in hosts.items()
        if result.get("changed")
    ]


def failures(played: Any) -> dict[str, str]:
    return {
        task: str(result.get("msg"))
        for task, hosts in played.tasks.items()
        for result in hosts.values()
        if result.get("failed")
    }


def test_a_tar_goes_from_host_to_host_and_a_second_run_changes_nothing(
    site: Site, tmp_path: Path
) -> None:
    # The second host does not have it where the first one has.
    site.hosts["h2"]["engine_image_file"] = str(tmp_path / "elsewhere.tar")
    said = site.run("--check")
    assert failures(said) == {}
    assert changes(said)
    assert not (tmp_path / "h1/environments").exists()
    first = site.run()
    assert failures(first) == {}
    assert GATE in first.tasks
    arrived = background.look(str(tmp_path / "h2/tasks"), "image-tar")
    assert arrived["state"] == "done"
    assert not (tmp_path / "elsewhere.tar").exists()
    second = site.run()
    assert changes(second) == []
    assert not (tmp_path / "h1/images").exists()


@pytest.mark.parametrize(
    ("engine", "shared"),
    [({"layout": {"data": 2, "tensor": 1}}, True), ({"layout": {"tensor": 2}}, False)],
)
def test_containers_of_data_ranks_share_the_memory_files_of_their_host(
    engine: dict[str, Any], shared: bool, site: Site, tmp_path: Path
) -> None:
    site.hosts.pop("h2")
    played = site.run(engines=[{"name": "chat", "model": "a/b"}, {"name": "r1", **engine}])
    assert failures(played) == {}
    (written,) = (tmp_path / "h1/environments").glob("*/bin/python")
    assert ("--ipc=host" in written.read_text()) == shared


def test_a_tar_of_the_controller_is_proven_before_it_is_copied(
    site: Site, archive: Path, tmp_path: Path
) -> None:
    # Hosts take the path as it stands: they lack what the controller has in its home directory.
    site.variables["engine_image_file"] = "~/engine.tar"
    site.environment["HOME"] = str(tmp_path / "home")
    tar = tmp_path / "home/engine.tar"
    tar.parent.mkdir()
    whole = archive.read_bytes()
    tar.write_bytes(whole[: len(whole) // 2])
    for flags in (["--check"], []):
        played = site.run(*flags)
        assert set(failures(played)) == {SPREAD}
        assert f"{tar} is not the expected image" in failures(played)[SPREAD]
        (refused,) = played.tasks[SPREAD].values()
        assert refused["where"] == f"{tar} on the controller"
        assert changes(played) == []
    assert not (tmp_path / "h1/images").exists()
    tar.write_bytes(whole)
    played = site.run()
    assert failures(played) == {}
    assert f"{COPY} on h1" in changes(played)
    assert GATE in played.tasks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a directory that is a file system of its own, with next to no room."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("a small file system needs a root that may mount")
    yield place
    subprocess.run(["umount", str(place)], capture_output=True)


def test_a_host_without_room_is_named_before_anything_travels(
    site: Site, small_disk: Path, tmp_path: Path
) -> None:
    site.hosts["h2"]["engine_image_file"] = str(tmp_path / "elsewhere.tar")
    site.hosts["h2"]["site_host"]["cluster_dir"] = str(small_disk)
    for flags in (["--check"], []):
        played = site.run(*flags)
        assert set(failures(played)) == {SPREAD}
        told = failures(played)[SPREAD]
        assert f"h2 has 0.0 GiB free in {small_disk}/images, and it takes about" in told
        assert "h1 has" not in told
        assert changes(played) == []
    assert list(small_disk.iterdir()) == []
    assert not (tmp_path / "h1/images").exists()


def test_hosts_with_other_packages_are_told_apart(site: Site, tmp_path: Path) -> None:
    site.hosts["h2"]["engine_image_packages"] = ["extra==1.2"]
    told = failures(site.run())
    assert set(told) == {GATE}
    assert "extra" in told[GATE]
    for name in containers_tool("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        if name.startswith("localhost/vllm-ansible-engine:"):
            containers_tool("rmi", "--force", name)
