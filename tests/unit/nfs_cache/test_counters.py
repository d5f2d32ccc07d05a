"""Tables of the kernel, as those of Debian 12 (Linux 6.1) looked in a virtual machine."""

from __future__ import annotations

import pytest

from vllm_ansible.node.nfs import counters

VOLUMES = """NV SERVER   PORT DEV          FSID                              FSC
v4 7f000001  801 {device:<12} 74a5e9dfd54a04:92723c3a68f7095a   {fsc}
"""
MOUNTED = """27 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw
225 27 0:44 / /mnt/x rw,noatime shared:91 - nfs4 127.0.0.1:/srv/x rw,vers=4.2,fsc
"""
CACHES = """CACHE    REF   VOLS  OBJS  ACCES S NAME
======== ===== ===== ===== ===== = ===============
00000001     1     0     0     1 A mycache
00000002     1     0     0     1 {state} vllm-12345678
"""
BOUND = """VOLUME   REF   nCOOK ACC FL CACHE           KEY
======== ===== ===== === == =============== ================
00000003     6     5   0 00 vllm-10a98e1f   nfs,4.2,2,108,100007f,74a5e9dfd54a04,92723c3a68f7095a,,,
00000004     6     5   0 00 mycache         nfs,4.2,2,108,100007f,74a5e9dfd54a04,92723c3a68f7095b,,,
"""
STATISTICS = """FS-Cache statistics
Cookies: n=1 v=1 vcol=0 voom=0
NoSpace: nwr=0 ncr=0 cull=0
IO     : rd=8192 wr=4096
RdHelp : RA=0 RP=0 WB=0 WBZ=0 rr=0 sr=0
"""
MOUNTS = """device /dev/vda mounted on / with fstype ext4
device 127.0.0.1:/srv/y mounted on /mnt/x/y with fstype nfs4 statvers=1.1
\tbytes:\t9 9 9 9 9 9 9 9 
device 127.0.0.1:/srv/x mounted on /mnt/x with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,hard,proto=tcp,fsc,local_lock=none
\tage:\t0
\tbytes:\t33554432 16777216 0 0 16777216 16777216 8192 4096 
\tfsc:\t0 0 0 0 0 
"""


def test_the_column_fsc_is_that_of_the_mounts_own_device() -> None:
    for device, fsc, cached in (
        ("0:44", "yes", True),
        ("0:44", "no", False),
        ("0:4", "yes", False),
    ):
        volumes = VOLUMES.format(device=device, fsc=fsc)
        assert counters.caches("/mnt/x", volumes, MOUNTED) is cached
    assert not counters.caches("/mnt", VOLUMES.format(device="0:44", fsc="yes"), MOUNTED)
    assert not counters.caches("/mnt/x", "", MOUNTED)


def test_only_active_caches_count() -> None:
    assert counters.active_caches(CACHES.format(state="A"))[1:] == ["vllm-12345678"]
    assert counters.active_caches(CACHES.format(state="W")) == ["mycache"]
    assert counters.active_caches("") == []


def test_a_mount_is_held_by_the_cache_of_its_own_volume() -> None:
    row = counters.volume("/mnt/x", VOLUMES.format(device="0:44", fsc="yes"), MOUNTED)
    assert counters.bound_to(row, BOUND) == ["vllm-10a98e1f"]
    assert counters.bound_to(row, "") == []
    assert counters.bound_to([], BOUND) == []


def test_bytes_from_the_server_are_those_of_the_mount() -> None:
    assert counters.server_bytes("/mnt/x", MOUNTS) == 16777216
    assert counters.server_bytes("/mnt/x/y", MOUNTS) == 9
    assert counters.server_bytes("/", MOUNTS) is None
    assert counters.server_bytes("/mnt/z", MOUNTS) is None


@pytest.mark.parametrize(
    ("statistics", "found"), [(STATISTICS, {"reads": 8192, "writes": 4096}), ("", {})]
)
def test_reads_and_writes_of_the_cache(statistics: str, found: dict[str, int]) -> None:
    assert counters.cache_reads_and_writes(statistics) == found
