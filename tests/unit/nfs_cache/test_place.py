"""What a path is before something is mounted upon it, and a server that does not answer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vllm_ansible.node.nfs import place


def test_a_path_tells_what_a_mount_would_hide(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    empty = {"real": str(path), "entries": [], "away": ""}
    assert place.look(str(path), False) == {**empty, "there": False}
    path.mkdir()
    assert place.look(str(path), False) == {**empty, "there": True}
    (path / "weights").touch()
    assert place.look(str(path), False)["entries"] == ["weights"]
    (tmp_path / "link").symlink_to(path)
    assert place.look(str(tmp_path / "link"), False)["real"] == str(path)


def test_a_server_that_answers_is_not_away(tmp_path: Path) -> None:
    assert place.look(str(tmp_path), True)["away"] == ""
    assert "No such file" in place.away(str(tmp_path / "gone"), 10)


def test_a_server_that_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: time.sleep(60))
    found = place.away("/srv/shared", 0.3)
    assert found.startswith("no answer within 0.3 seconds at statvfs of /srv/shared")
