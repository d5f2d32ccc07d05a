"""What imports ask of an environment on NFS, counted by the client of a virtual machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ansible.lab.vm import Machine
from vllm_ansible.node.environment import build as environment

Keep = Callable[[str, dict[str, Any]], None]
IMAGE, ARCHIVE, TREE = "environment.squashfs", "environment.tar.gz", "tree"
SHARE, MOUNT, LOCAL = "/srv/disk", "/srv/environment", "/srv/image"
# The machine exports to itself: what its client asks for does not depend on the wire. Its Python
# is of the same release as the environment's, which it finds where the one it was made with lies.
PREPARE = f"""
set -e
modprobe -a loop squashfs
mkdir -p {SHARE} {MOUNT} {LOCAL}
[ {{base}} = /usr ] || {{{{ mkdir -p {{base}}; ln -s /usr/bin /usr/lib {{base}}/; }}}}
mount -o ro /dev/vdc {SHARE}
echo '{SHARE} 127.0.0.1(ro,fsid=0,no_root_squash)' > /etc/exports
systemctl start nfs-server
exportfs -ra
"""
FRESH = f"""
set -e
umount {LOCAL} 2>/dev/null || true
umount {MOUNT} 2>/dev/null || true
sync
echo 3 > /proc/sys/vm/drop_caches
mount -t nfs4 -o ro,vers=4.2 127.0.0.1:/ {MOUNT}
"""
# Nothing may be written: a service user on a host may not either.
IMPORT = "cd / && PYTHONDONTWRITEBYTECODE=1 {}/bin/python -c '{}' >/dev/null"


def disk(directory: Path, place: Path) -> Path:
    """Return a disk with the environment, its image and its archive, as a share would hold them."""
    share = directory / "share"
    share.mkdir()
    subprocess.run(["cp", "-al", str(place), str(share / TREE)], check=True)
    for name in (IMAGE, ARCHIVE):
        (share / name).hardlink_to(directory / name)
    made = directory / "share.ext4"
    mib = sum(path.lstat().st_size for path in share.rglob("*")) // (1 << 20)
    # Inodes and the ends of blocks of 24,000 files take room as well.
    subprocess.run(
        ["mkfs.ext4", "-q", "-d", str(share), str(made), f"{mib * 5 // 4 + 256}M"], check=True
    )
    shutil.rmtree(share)
    return made


def counted(directory: Path, share: Path, base: Path, keep: Keep) -> None:
    """Tell operations and bytes that the server sent, for each way to use the share."""
    tree, image, archive = f"{MOUNT}/{TREE}", f"{MOUNT}/{IMAGE}", f"{MOUNT}/{ARCHIVE}"
    ways = {
        "tree, first import": IMPORT.format(tree, environment.IMPORT_CHECK),
        "tree, next import": IMPORT.format(tree, environment.IMPORT_CHECK),
        "image, first import": f"mount -o loop,ro {image} {LOCAL} && "
        + IMPORT.format(LOCAL, environment.IMPORT_CHECK),
        "image, next import": IMPORT.format(LOCAL, environment.IMPORT_CHECK),
        "archive read": f"cat {archive} >/dev/null",
    }
    with Machine.create("env", memory_mib=6144, disks=[share], root=directory) as machine:
        run = Shell(machine)
        run(PREPARE.format(base=base))
        for way, line in ways.items():
            if "next" not in way:
                run(FRESH)
            before = run.asked()
            run(line)
            after = run.asked()
            keep(way, {name: after[name] - before[name] for name in after})


class Shell:
    """Commands on the machine, and what its NFS client has asked for so far."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __call__(self, line: str) -> str:
        """Run a line as root, which must succeed."""
        return self.machine.run(["sh", "-c", line], timeout=3600).stdout

    def asked(self) -> dict[str, int]:
        """Return operations, reads among them, and bytes received, of the mount."""
        text = self("cat /proc/self/mountstats")
        section = text.partition(f" mounted on {MOUNT} ")[2].partition("\ndevice ")[0]
        # name: operations transmissions timeouts bytes_sent bytes_received ...
        rows = re.findall(
            r"^\s+([A-Z_]+): (\d+) \d+ \d+ \d+ (\d+) ", section.partition("per-op")[2], re.M
        )
        operations = {name: int(count) for name, count, _ in rows}
        return {
            "operations": sum(operations.values()),
            "reads": operations["READ"],
            "bytes": sum(int(received) for _, _, received in rows),
        }
