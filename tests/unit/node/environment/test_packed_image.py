"""Images of environments on hosts where one is mounted, is in use, or cannot be mounted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import image_mount, old_environments

from ...fake_uv import wanted_with
from ..packs import Host, can_mount, unmounted

__all__ = ["unmounted"]


def test_a_copy_replaces_an_image_and_old_ones_go_unmounted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_mount(tmp_path):
        pytest.skip("neither this kernel nor squashfuse mounts an image here")
    wanted = wanted_with(tmp_path, monkeypatch)
    image, copy = Host(wanted, "image"), Host(wanted, "copy")
    image.run("present")
    image.become_another()
    image.run("proven")
    # Packed again from what is mounted, for others.
    assert copy.run("present") and not image_mount.is_mounted(copy.place)
    assert not image.run("proven"), "what lies here whole is as good as an image of it"
    copy.become_another()
    image.run("proven")
    assert old_environments.remove([image.place]) == [image.place]
    assert not image.place.exists() and image.packs()


def test_what_lies_there_stays_where_an_image_cannot_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(wanted_with(tmp_path, monkeypatch), "image")
    host.run("present")
    (pack,) = host.packs()
    pack.write_bytes(bytes(pack.stat().st_size))
    site = host.place / "lib/python3.11/site-packages"
    (site / "ray-2.60.0.dist-info").rename(site / "ray-2.61.0.dist-info")
    for _ in range(2):
        with pytest.raises(BuildError, match="cannot be mounted"):
            host.run("proven")
        assert (site / "vllm/a.py").exists()
    assert not host.place.with_name(f".{host.place.name}.before").exists()


def test_an_image_in_use_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_mount(tmp_path):
        pytest.skip("neither this kernel nor squashfuse mounts an image here")
    wanted = wanted_with(tmp_path, monkeypatch)
    image, copy = Host(wanted, "image"), Host(wanted, "copy")
    assert copy.run("present") and image.run("present")
    image.become_another()
    image.run("proven")
    with (image.place / "bin/python").open("rb"):
        before = sorted(image.place.parent.iterdir())
        with pytest.raises(BuildError, match="it is in use") as error:
            copy.run("proven")
        assert error.value.details["fix"].startswith("stop what runs from it (playbooks/stop.yml)")
        assert error.value.details["where"] == str(image.place)
        assert image.look()["complete"] and sorted(image.place.parent.iterdir()) == before
    assert copy.run("proven") and copy.look()["complete"]
    assert not image_mount.is_mounted(copy.place)


def test_a_host_without_the_tools_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(wanted_with(tmp_path, monkeypatch), "image")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BuildError, match="cannot be packed without mksquashfs") as error:
        host.run("present")
    assert error.value.details["fix"].startswith("install squashfs-tools here, or say")
    assert not host.place.exists()


def test_a_host_that_cannot_mount_is_told_what_was_tried(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_text("no image")
    with pytest.raises(BuildError, match="cannot be mounted") as error:
        image_mount.mount(image, tmp_path / "place", os.environ)
    assert error.value.details["fix"].endswith("environment_shared_form: copy")
    assert error.value.details["found"]
    assert not image_mount.is_mounted(tmp_path / "place")
