"""The role on a real NFS server and a real client: the cache caches, and survives a boot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.vm import TOOLS
from vllm_ansible.node.nfs.probe import from_cache

from .nfs_machines import ADDRESSES, PATH, Machines

# Twenty minutes beside other work, most of them Ansible on emulated processors.
pytestmark = [pytest.mark.vm, pytest.mark.soak]
MIB = 1 << 20
SIZE = 24 * MIB
# 1 MB/s, as the link of the server is cut to.
CUT, CUT_BYTES = "8mbit", 1_000_000
LIMITS = {"brun": 12}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machines' disks need root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machines need {', '.join(missing)}")
    with ExitStack() as stack:
        yield Machines(stack, tmp_path_factory.mktemp("nfs"))


def test_a_host_serves_and_another_mounts_with_a_cache_that_caches(machines: Machines) -> None:
    made = machines.play()
    assert not made.failed, made.why()
    judged = made.result("Judge what the cache did", "client")["evidence"]
    print(judged["summary"])
    assert judged["values"]["proof"]["fsc"]
    volumes = machines.sh("client", "cat /proc/fs/nfsfs/volumes").splitlines()
    assert [line.split()[-1] for line in volumes] == ["FSC", "yes"]
    exported = machines.sh("server", "exportfs -s").splitlines()
    assert [line.split()[:1] for line in exported] == [[PATH]]
    assert f" {ADDRESSES['client']}(" in exported[0] and "root_squash" in exported[0]

    again = machines.play()
    assert (again.why(), again.changed) == ([], {"client": 0, "server": 0})
    assert not again.result("Read a file twice", "client")["again"], "it is known"


def test_what_was_read_once_does_not_wait_for_a_slow_link_nor_for_a_boot(
    machines: Machines,
) -> None:
    for name, size in (("weights", SIZE), ("others", 4 * MIB)):
        machines.sh("server", f"head -c {size} /dev/urandom > {PATH}/{name}")
    first = machines.read("weights")
    assert first["server_bytes"] >= SIZE

    machines.link(CUT)
    others = machines.read("others")
    assert others["server_bytes"] >= 4 * MIB
    assert others["seconds"] > 0.8 * 4 * MIB / CUT_BYTES, "the link is cut"
    second = machines.read("weights")
    assert from_cache(second, SIZE)
    assert second["seconds"] < SIZE / CUT_BYTES / 2

    machines.reboot("client")
    machines.sh("client", f"timeout 120 sh -c 'until mountpoint -q {PATH}; do sleep 1; done'")
    machines.sh(
        "client", "timeout 120 sh -c 'until grep -q vllm /proc/fs/fscache/caches; do sleep 1; done'"
    )
    third = machines.read("weights")
    assert from_cache(third, SIZE), "the cache is on the disk, and fstab knows it"
    assert third["seconds"] < SIZE / CUT_BYTES / 2
    machines.link("")


def test_after_a_boot_it_is_proven_anew_and_nothing_changes(machines: Machines) -> None:
    again = machines.play()
    assert (again.why(), again.changed) == ([], {"client": 0, "server": 0})
    assert again.result("Read a file twice", "client")["again"], "it was another boot"


def test_a_mount_gets_another_cache_only_while_nobody_uses_it(machines: Machines) -> None:
    shown = "cat /etc/cachefilesd.conf; systemctl show -p MainPID cachefilesd"
    before = machines.sh("client", shown)
    machines.reader()
    refused = machines.play(nfs_cache_limits=LIMITS)
    assert refused.failed
    judged = refused.result("Judge whether it can be that", "client")
    assert judged["msg"].startswith("who uses the mount") and "tail -f" in judged["found"]
    assert machines.sh("client", shown) == before

    machines.sh("client", "systemctl stop reader")
    made = machines.play(nfs_cache_limits=LIMITS)
    assert not made.failed, made.why()
    (difference,) = made.result("Mount it now", "client")["differences"]
    assert difference.startswith("the cache vllm-")
    assert made.result("Read a file twice", "client")["again"], "it is another cache"
    assert made.changed["server"] == 0


def test_a_host_boots_while_its_server_is_away(machines: Machines) -> None:
    machines.sh("server", "ip link set eth1 down")
    away = machines.away(5)
    machines.sh("server", "ip link set eth1 up")
    assert away.startswith(f"no answer within 5 seconds at statvfs of {PATH}")
    assert machines.away(120) == ""

    machines.sh("client", f"umount {PATH}")
    machines.sh("server", "ip link set eth1 down")
    machines.reboot("client")
    up = "until systemctl is-active -q multi-user.target; do sleep 1; done"
    machines.sh("client", f"timeout 120 sh -c '{up}' && ! mountpoint -q {PATH}")
    # What systemd still tries would be in the way of what is tried here.
    machines.sh("client", f"systemctl stop $(systemd-escape --path --suffix=mount {PATH})")
    machines.sh("server", "ip link set eth1 up")
    mounted = machines.mount("vers=4.2,hard,noatime,fsc")
    assert mounted["changed"] and not mounted["failed"]


def test_a_mount_that_is_used_is_left_alone_and_its_user_is_named(machines: Machines) -> None:
    machines.reader()
    machines.sh("client", "sed -i 's/,fsc//' /etc/fstab")
    wanted = "vers=4.2,hard,noatime"
    refused = machines.mount(wanted)
    assert refused["failed"], refused
    assert "no fsc" in refused["msg"] and "tail -f" in refused["found"]
    assert "tail" in machines.sh("client", "pgrep -l tail")

    machines.sh("client", "systemctl stop reader")
    # As a container does: its mount outlives that of the host, and the kernel gives it again.
    other = "unshare --mount --propagation private sleep infinity"
    machines.sh("client", f"systemd-run -q --unit=other {other}")
    assert "another mount holds it" in machines.mount(wanted)["msg"]
    machines.sh("client", "systemctl stop other")
    assert machines.mount(wanted)["differences"] == ["no fsc"]
    assert machines.mount(wanted)["changed"] is False


def test_without_a_cache_the_proof_fails(machines: Machines) -> None:
    proof = machines.probe(4 * MIB)
    assert not proof["fsc"]
    assert len(proof["reads"]) == 4, "tried again, but not for ever"
    assert not any(from_cache(one, 4 * MIB) for one in proof["reads"])


def test_in_check_mode_it_is_only_said_what_would_change(machines: Machines) -> None:
    shown = "cat /etc/fstab /proc/fs/nfsfs/volumes"
    before = machines.sh("client", shown)
    asked = machines.play("--check", nfs_cache_limits=LIMITS)
    assert not asked.failed, asked.why()
    assert asked.result("Let it be mounted at boot", "client")["changed"]
    assert asked.result("Mount it now", "client")["differences"] == ["fsc instead of none"]
    assert machines.sh("client", shown) == before
