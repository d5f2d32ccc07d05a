"""What room there is for a tar, on real file systems."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vllm_ansible.node.image import room


def test_room_is_seen_where_directories_are_yet_to_be_made(tmp_path: Path) -> None:
    images = tmp_path / "c/images"
    seen = room.look(str(images), "image-1", str(tmp_path), "/proc")
    assert seen["tar"]["path"] == str(images)
    assert seen["tar"]["there_bytes"] == 0
    assert abs(seen["tar"]["free_bytes"] - shutil.disk_usage(tmp_path).free) < 1 << 32
    assert seen["tar"]["device"] == seen["received"]["device"] == os.stat(tmp_path).st_dev
    assert seen["storage"]["device"] == os.stat("/proc").st_dev != seen["tar"]["device"]
    assert not images.exists()


def test_what_has_arrived_is_counted_without_what_a_link_leads_to(tmp_path: Path) -> None:
    whole = tmp_path / "whole.tar"
    whole.write_bytes(b"x" * (1 << 20))
    final, growing = tmp_path / "images/image-1", tmp_path / "images/image-1.partial/.cache"
    final.mkdir(parents=True)
    (final / "image.tar").symlink_to(whole)
    growing.mkdir(parents=True)
    (growing / "image.tar.part").write_bytes(b"x" * (1 << 16))
    (tmp_path / "images/image-2").mkdir()
    (tmp_path / "images/image-2/image.tar").write_bytes(b"x" * (1 << 16))
    seen = room.look(str(tmp_path / "images"), "image-1", str(tmp_path), str(tmp_path))
    assert 1 << 16 <= seen["tar"]["there_bytes"] < 1 << 17


def test_files_that_ansible_copies_go_to_the_home_of_who_logs_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    places = []
    for user in ("", "daemon"):
        if user:
            monkeypatch.setenv("SUDO_USER", user)
        seen = room.look(str(tmp_path), "image-1", "~/.ansible/tmp", str(tmp_path))
        places.append(seen["received"]["path"])
    assert places == [f"{tmp_path}/.ansible/tmp", os.path.expanduser("~daemon/.ansible/tmp")]
