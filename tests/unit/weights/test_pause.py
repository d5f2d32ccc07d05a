"""While links are measured, nothing of weights loads them, and all else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.node.process import background

from ..conftest import ROOT, Playbook

NAMES = ("weights", "weights-whole", "digests", "environment")


@pytest.mark.parametrize("runs", [True, False])
def test_what_loads_the_links_is_stopped(play: Playbook, tmp_path: Path, runs: bool) -> None:
    cluster = tmp_path / "cluster"
    tasks = str(cluster / "tasks")
    for name in NAMES if runs else ():
        background.start(tasks, name, background.Command(("sleep", "600")))
    try:
        played = play(
            [{"include_tasks": str(ROOT / "roles/weights/tasks/pause.yml")}],
            {"here": {"site_host": {"cluster_dir": str(cluster)}}},
        )
        told = [one for name in played.tasks if "for a while" in name for one in [played[name]]]
        assert len(told) == 1 and not any(one["changed"] or one.get("failed") for one in told)
        states = [background.look(tasks, name)["state"] for name in NAMES]
        assert states == (["failed", "failed", "failed", "running"] if runs else ["absent"] * 4)
    finally:
        for name in NAMES:
            background.stop(tasks, name)
