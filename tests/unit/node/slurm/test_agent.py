"""What the agent of a job keeps on a node is its user's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vllm_ansible.node.slurm.agent import make_private


def test_a_directory_is_private_also_where_it_was_there_already(tmp_path: Path) -> None:
    for path in (tmp_path / "new", tmp_path / "old"):
        if path.name == "old":
            path.mkdir(mode=0o777)
        make_private(str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(SystemExit, match="is no directory of this user"):
        make_private(str(tmp_path / "link"))


def test_a_directory_that_somebody_else_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    with pytest.raises(SystemExit, match="--exclude"):
        make_private(str(tmp_path))
