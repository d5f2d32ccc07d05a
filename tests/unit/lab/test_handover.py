"""What `sudo make lab` wrote is for the person who typed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_ansible.lab.handover import hand_over
from vllm_ansible.lab.paths import lab_paths

NOBODY = {"SUDO_UID": "65534", "SUDO_GID": "65534"}


def made(root: Path) -> list[Path]:
    """Write what a lab writes, and return what a person needs of it."""
    paths = lab_paths("lab", root=root)
    keys = [paths.key, paths.key.with_name("id_ed25519.pub"), paths.known_hosts]
    files = [*keys, paths.inventory / "hosts.yml"]
    for file in [*files, paths.record]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    return [*files, root / "state", root / "state/lab", root / "state/lab/lab"]


def test_inventory_and_key_go_to_who_typed_sudo_and_nothing_else_does(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    given: list[tuple[Path, int, int]] = []
    paths = lab_paths("lab", root=tmp_path)
    name = hand_over(paths, NOBODY, tmp_path, lambda *one: given.append(one))
    assert name == "nobody"
    assert sorted(given) == sorted((path, 65534, 65534) for path in wanted)


@pytest.mark.parametrize(
    "environment", [{}, {"SUDO_UID": "0", "SUDO_GID": "0"}, {"SUDO_UID": "x", "SUDO_GID": "1"}]
)
def test_root_itself_keeps_what_it_made(tmp_path: Path, environment: dict[str, str]) -> None:
    made(tmp_path)
    paths = lab_paths("lab", root=tmp_path)
    assert hand_over(paths, environment, tmp_path) == ""
    assert paths.key.stat().st_uid == os.getuid()
