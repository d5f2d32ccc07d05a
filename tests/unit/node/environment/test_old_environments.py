"""Of earlier environments those go that no record names and no process runs from."""

from __future__ import annotations

import subprocess
from pathlib import Path

from vllm_ansible.node.environment import old_environments


def make(cluster: Path, *names: str) -> list[Path]:
    places = [cluster / "environments" / name for name in names]
    for place in places:
        (place / "bin").mkdir(parents=True)
    return places


def test_what_a_process_runs_from_stays(tmp_path: Path) -> None:
    by_command, by_directory, idle = places = make(tmp_path, "a", "b", "c")
    (by_command / "bin/tail").symlink_to("/usr/bin/tail")
    follow = ["-f", "/dev/null"]
    with (
        subprocess.Popen([by_command / "bin/tail", *follow]) as first,
        subprocess.Popen(["tail", *follow], cwd=by_directory) as second,
    ):
        try:
            assert old_environments.remove(places) == [idle]
        finally:
            first.kill()
            second.kill()
    assert [place.exists() for place in places] == [True, True, False]


def test_a_cluster_without_environments_has_no_old_ones(tmp_path: Path) -> None:
    assert old_environments.removable(str(tmp_path), "d" * 64) == []


def test_a_record_that_cannot_be_read_may_name_any_of_them(tmp_path: Path) -> None:
    make(tmp_path, "a", "b", "c")
    assert len(old_environments.removable(str(tmp_path), "d" * 64)) == 2
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes/e0-serve.json").symlink_to(tmp_path / "gone")
    assert old_environments.removable(str(tmp_path), "d" * 64) == []


def test_a_link_is_none_of_ours(tmp_path: Path) -> None:
    first, second = make(tmp_path, "a", "b")
    (tmp_path / "environments/link").symlink_to(tmp_path)
    assert len(old_environments.removable(str(tmp_path), "d" * 64)) == 1
    assert first.exists() and second.exists()
