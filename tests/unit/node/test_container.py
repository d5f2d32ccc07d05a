"""A container has marks and namespaces of its own; a machine made from an image has marks alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_ansible.node.container import MARKS, in_container

# As `ls -l /proc/self/ns` showed them on the machine of tests/data/README.md, 2026-11-23: a
# virtual machine with /.dockerenv and /run/systemd/container.
OF_A_MACHINE = {
    "cgroup": "cgroup:[4026531835]",
    "ipc": "ipc:[4026531839]",
    "pid": "pid:[4026531836]",
    "uts": "uts:[4026531838]",
}


def host(root: Path, mark: str, **own: str) -> Path:
    """Make a root with a mark and namespaces; own: those that a runtime made."""
    (root / mark).parent.mkdir(parents=True, exist_ok=True)
    (root / mark).touch()
    (root / "proc/self/ns").mkdir(parents=True)
    for name, link in {**OF_A_MACHINE, **own}.items():
        os.symlink(link, root / "proc/self/ns" / name)
    return root


@pytest.mark.parametrize("mark", MARKS)
def test_a_container_is_known_by_its_marks(tmp_path: Path, mark: str) -> None:
    assert not in_container(tmp_path)
    assert in_container(host(tmp_path, mark, pid="pid:[4026532733]"))


def test_a_virtual_machine_made_of_an_image_is_no_container(tmp_path: Path) -> None:
    assert not in_container(host(tmp_path, ".dockerenv"))


@pytest.mark.parametrize("name", sorted(OF_A_MACHINE))
def test_one_namespace_of_its_own_makes_a_container(tmp_path: Path, name: str) -> None:
    # --pid=host, --uts=host, --ipc=host and --cgroupns=host each leave the others.
    assert in_container(host(tmp_path, ".dockerenv", **{name: f"{name}:[4026532733]"}))


def test_marks_count_where_namespaces_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    assert in_container(tmp_path)
