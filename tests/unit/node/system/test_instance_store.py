"""Only empty disks of one model are ever made a file system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.system.instance_store import (
    LABEL,
    MODEL,
    commands,
    disks,
    mounted,
    ours,
    used,
)

NOTHING: dict[str, Any] = {"fstype": None, "pttype": None, "label": None, "mountpoint": None}


def disk(number: int, **more: Any) -> dict[str, Any]:
    path = f"/dev/nvme{number}n1"
    return {"path": path, "type": "disk", "model": MODEL, "size": 3800, **NOTHING, **more}


def array(**more: Any) -> dict[str, Any]:
    return {"path": "/dev/md127", "type": "raid0", "model": None, **NOTHING, **more}


def test_no_other_disk_is_looked_at() -> None:
    listed = {
        "blockdevices": [
            disk(0, model="Amazon Elastic Block Store"),
            disk(1),
            disk(2, model=f"{MODEL}    "),
            disk(3, model=None),
            disk(4, model="SAMSUNG MZQL23T8HCLS"),
            {**disk(5), "type": "part"},
        ]
    }
    assert [one["path"] for one in disks(listed)] == ["/dev/nvme1n1", "/dev/nvme2n1"]
    assert disks({}) == []


@pytest.mark.parametrize(
    ("more", "signatures", "told"),
    [
        ({}, "", ""),
        ({}, "# offset,uuid,label,type\n", ""),
        ({"fstype": "ext4"}, "", "a file system (ext4)"),
        ({"pttype": "gpt"}, "", "a partition table (gpt)"),
        ({"mountpoint": "/data"}, "", "mounted at /data"),
        ({"children": [array()]}, "", "part of /dev/md127"),
        (
            {
                "children": [
                    array(children=[array(path="/dev/vg/lv", mountpoint="/opt/dlami/nvme")])
                ]
            },
            "",
            "mounted at /opt/dlami/nvme",
        ),
        ({}, "# offset,uuid,label,type\n0x438,1f2e,,ext4\n", "a signature (ext4)"),
        ({}, "0x1fe,,,dos\n0x218,,,LVM2_member\n", "a signature (LVM2_member, dos)"),
    ],
)
def test_a_disk_that_holds_anything_is_named_with_it(
    more: dict[str, Any], signatures: str, told: str
) -> None:
    assert used(disk(1, **more), signatures) == told


def test_several_disks_are_striped_and_nothing_is_forced() -> None:
    device, run = commands([disk(1), disk(2), disk(3)])
    assert device == f"/dev/md/{LABEL}"
    assert run[0][:5] == ["mdadm", "--create", device, "--level=0", "--raid-devices=3"]
    assert run[0][-3:] == ["/dev/nvme1n1", "/dev/nvme2n1", "/dev/nvme3n1"]
    assert run[1] == ["mkfs.xfs", "-q", "-L", LABEL, device]
    assert not {"-f", "--force", "--run", "-R"} & {word for argv in run for word in argv}


def test_one_disk_needs_no_array() -> None:
    assert commands([disk(1)]) == (
        "/dev/nvme1n1",
        [["mkfs.xfs", "-q", "-L", LABEL, "/dev/nvme1n1"]],
    )


def test_xfs_takes_the_label() -> None:
    assert len(LABEL) <= 12


def test_what_a_boot_left_unmounted_is_found_again() -> None:
    left = [disk(1, children=[array(fstype="xfs", label=LABEL)]), disk(2)]
    assert ours(left) == "/dev/md127"
    assert ours([disk(1, fstype="xfs", label=LABEL)]) == "/dev/nvme1n1"
    assert ours([disk(1, fstype="xfs", label="theirs")]) is None
    assert ours([disk(1, fstype="xfs", label=LABEL, mountpoint="/elsewhere")]) is None


def test_what_is_mounted_is_told_from_what_is_ours() -> None:
    mine = array(fstype="xfs", label=LABEL, mountpoint="/store")
    found = [disk(1, children=[mine]), disk(2, children=[mine]), disk(3)]
    under, own = mounted(found, "/store/")
    assert ([one["path"] for one in under], own) == (["/dev/nvme1n1", "/dev/nvme2n1"], True)
    theirs = [disk(1, children=[array(path="/dev/vg/lv", fstype="ext4", mountpoint="/store")])]
    assert mounted(theirs, "/store") == (theirs, False)
    assert mounted(found, "/") == ([], False)


def test_the_role_takes_what_is_mounted_and_says_that_it_is_no_instance_store(play: Any) -> None:
    """The real module in a real play, on a path that every machine has mounted."""
    tasks = str(Path(__file__).parents[4] / "roles/host/tasks/instance_store.yml")
    facts = {"host_instance_store_path": "/proc", "site_host": {"name": "n1"}}
    found = play([{"name": "store", "include_tasks": tasks}], {"n1": facts})
    assert found["Mount the instance store"]["changed"] is False
    assert found["Let it be mounted at boot"]["skipped"]
    summary = found["Say what it is"]["evidence"]["summary"]
    assert summary == "/proc of n1 is proc, which is no instance store"
