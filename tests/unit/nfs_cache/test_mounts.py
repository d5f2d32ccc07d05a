"""What is mounted, and when a mount is to be made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.node.nfs.mounts import differences, mounted_at, other_cache

# As the kernel of a virtual machine told it, Debian 12, Linux 6.1.
LIVE = (
    "rw,noatime,rw,vers=4.2,rsize=131072,wsize=131072,namlen=255,hard,proto=tcp,timeo=600,"
    "retrans=2,sec=sys,clientaddr=127.0.0.1,fsc,local_lock=none,addr=127.0.0.1"
)
WANTED = "vers=4.2,hard,noatime,fsc,_netdev,nofail"


@pytest.mark.parametrize(
    "wanted",
    [
        WANTED,
        "vers=4,fsc",
        "nfsvers=4.2,rw,fsc,noatime",
        # The server grants what it likes of these.
        "rsize=1048576,wsize=1048576,timeo=14,fsc,x-systemd.mount-timeout=30",
    ],
)
def test_a_mount_that_is_as_wanted_stays(wanted: str) -> None:
    assert differences(LIVE, wanted) == []


@pytest.mark.parametrize(
    ("live", "wanted", "found"),
    [
        (LIVE.replace(",fsc", ""), WANTED, ["fsc instead of none"]),
        (LIVE, WANTED.replace(",fsc", ""), ["no fsc"]),
        (LIVE.replace("noatime", "relatime"), WANTED, ["noatime"]),
        (LIVE.replace("hard", "soft"), WANTED, ["no soft"]),
        (LIVE, WANTED + ",ro", ["ro instead of none"]),
        (LIVE.replace("vers=4.2", "vers=3"), WANTED, ["vers=4.2 instead of 3"]),
        (LIVE, "vers=4.1,hard,fsc", ["vers=4.1 instead of 4.2"]),
        (LIVE, WANTED + ",proto=rdma", ["proto=rdma instead of tcp"]),
    ],
)
def test_what_only_a_new_mount_changes_is_named(live: str, wanted: str, found: list[str]) -> None:
    assert differences(live, wanted) == found


def test_a_mount_whose_cache_was_replaced_is_mounted_anew() -> None:
    assert other_cache(["mycache"], "vllm-1") == ["the cache vllm-1 instead of mycache"]
    # One directory that is mounted twice has two volumes.
    assert other_cache(["mycache", "vllm-1"], "vllm-1") == []
    assert other_cache([], "vllm-1") == [], "it has none yet"
    assert other_cache(["mycache"], "") == []


def test_of_several_mounts_at_one_path_the_last_one_counts(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "40 22 0:44 / /srv/shared rw,noatime shared:9 - nfs4 10.0.0.1:/one rw,vers=4.2,fsc\n"
        "41 40 0:45 / /srv/shared rw - nfs4 10.0.0.1:/two rw,vers=3\n"
    )
    found = mounted_at("/srv/shared/", str(table))
    assert found is not None
    assert (found["source"], found["options"]) == ("10.0.0.1:/two", "rw,rw,vers=3")
    assert mounted_at("/srv", str(table)) is None
