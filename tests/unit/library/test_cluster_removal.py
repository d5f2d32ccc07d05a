"""The module removes real directories of ours, and none that is somebody else's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import image_mount

Module = Callable[..., dict[str, Any]]
KEEP = ["environments", "models", "tasks"]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return fill(tmp_path)


def fill(root: Path) -> Path:
    for name in ("c/processes", "c/logs", "c/tasks", "c/models/m", "c/secrets", "run"):
        (root / name).mkdir(parents=True)
    for name in ("c/plan.json", "c/lock.json", "c/models/m/weights", "run/socket"):
        (root / name).write_text("x")
    return root / "c"


def arguments(cluster: Path, *keep: str) -> dict[str, Any]:
    return {"cluster_dir": str(cluster), "run_dir": str(cluster.parent / "run"), "keep": list(keep)}


def test_what_is_to_stay_stays_and_the_rest_goes_once(run_module: Module, cluster: Path) -> None:
    args = arguments(cluster, *KEEP)
    said = run_module("cluster_removal", args, [], check=True)
    assert said["changed"] and (cluster / "plan.json").exists()
    result = run_module("cluster_removal", args, [])
    assert result["removed"] == said["removed"]
    assert sorted(os.listdir(cluster)) == ["models", "tasks"]
    assert (cluster / "models/m/weights").exists()
    assert not (cluster.parent / "run").exists()
    assert run_module("cluster_removal", args, [])["removed"] == []


def test_the_lock_of_the_run_that_asks_is_nothing_to_remove(
    run_module: Module, cluster: Path
) -> None:
    args = arguments(cluster, *KEEP)
    run_module("cluster_removal", args, [])
    (cluster / "lock.json").write_text("{}")
    assert not run_module("cluster_removal", args, [])["changed"]


@pytest.mark.parametrize("keep", [(), KEEP])
def test_a_cluster_that_was_never_made_has_nothing_but_the_lock(
    run_module: Module, tmp_path: Path, keep: tuple[str, ...]
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c/lock.json").write_text("{}")
    result = run_module("cluster_removal", arguments(tmp_path / "c", *keep), [])
    assert not result.get("failed") and result["removed"] == []


def test_nothing_to_keep_leaves_nothing(run_module: Module, cluster: Path) -> None:
    assert run_module("cluster_removal", arguments(cluster), [])["removed"] == [
        str(cluster),
        str(cluster.parent / "run"),
    ]
    assert not cluster.exists()
    assert run_module("cluster_removal", arguments(cluster), [])["removed"] == []


@pytest.mark.parametrize("name", ["notes.txt", "plan.json", ".ssh"])
def test_a_directory_that_is_not_ours_is_refused(
    run_module: Module, tmp_path: Path, name: str
) -> None:
    mine = tmp_path / "c"
    mine.mkdir()
    (mine / name).write_text("dear")
    for check in (False, True):
        result = run_module("cluster_removal", arguments(mine, *KEEP), [], check=check)
        assert result["failed"] and result["found"] == name and result["where"] == str(mine)
    assert (mine / name).read_text() == "dear"


def test_a_link_is_not_followed(run_module: Module, cluster: Path) -> None:
    away = cluster.rename(cluster.with_name("away"))
    cluster.symlink_to(away)
    result = run_module("cluster_removal", arguments(cluster), [])
    assert result["removed"] == [str(cluster.parent / "run")]
    assert (away / "plan.json").exists()


def test_a_link_inside_is_removed_and_what_it_names_is_not(
    run_module: Module, cluster: Path
) -> None:
    shared = cluster.parent / "shared"
    shared.mkdir()
    (shared / "weights").write_text("large")
    (cluster / "linked").symlink_to(shared)
    run_module("cluster_removal", arguments(cluster, *KEEP), [])
    assert not (cluster / "linked").is_symlink()
    assert (shared / "weights").read_text() == "large"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what cannot be removed")
def test_what_cannot_be_removed_is_named(module_as_nobody: Module, nobodys: Path) -> None:
    cluster = fill(nobodys)
    result = module_as_nobody("cluster_removal", arguments(cluster))
    assert result["failed"] and "Permission denied" in result["found"]
    assert result["where"] == str(cluster) and result["fix"]
    assert (cluster / "plan.json").exists()


def test_what_is_mounted_is_let_go_and_not_emptied(run_module: Module, cluster: Path) -> None:
    place, image = cluster / "environments/abc", cluster.parent / "abc.squashfs"
    place.mkdir(parents=True)
    (place / "file").touch()
    pack = ["mksquashfs", str(place), str(image), "-quiet", "-no-progress"]
    subprocess.run(pack, check=True)
    try:
        image_mount.mount(image, place, os.environ)
    except BuildError:
        pytest.skip("neither this kernel nor squashfuse mounts an image here")
    assert image_mount.below(str(cluster)) == [place]
    assert run_module("cluster_removal", arguments(cluster), [])["changed"]
    assert not cluster.exists() and image.exists()
