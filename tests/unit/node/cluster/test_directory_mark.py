"""Whoever sees a directory reads the same mark, also those who come at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vllm_ansible.node.cluster import directory_mark


def test_two_directories_have_two_marks_that_stay(tmp_path: Path) -> None:
    first, second = (directory_mark.make(str(tmp_path / name)) for name in ("a", "b"))
    assert first and second and first != second
    assert (
        directory_mark.make(str(tmp_path / "a"))
        == first
        == directory_mark.read(str(tmp_path / "a"))
    )


def test_hosts_that_come_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        marks = set(pool.map(directory_mark.make, [str(tmp_path / "models")] * 64))
    assert len(marks) == 1 and marks != {""}
    assert [path.name for path in (tmp_path / "models").iterdir()] == [directory_mark.NAME]
