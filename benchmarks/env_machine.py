"""What imports ask of an environment on NFS, counted by the client of a virtual machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from vllm_ansible.lab.vm import Machine
from vllm_ansible.node import environment

SHARE, MOUNT, IMAGE, LOCAL = "/srv/disk", "/srv/environment", "environment.squashfs", "/srv/image"
# The machine exports to itself: what its client asks for does not depend on the wire.
PREPARE = f"""
set -e
mkdir -p {SHARE} {MOUNT} {LOCAL}
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


def disk(directory: Path, place: Path, image: Path) -> Path:
    """Return a disk with the environment and its packed image, as a share would hold them."""
    tree = directory / "tree"
    subprocess.run(["cp", "-al", str(place), str(tree)], check=True)
    # The machine's own Python is of the same release; the controller's lies elsewhere.
    _rehome(tree)
    shutil.copy(image, tree / IMAGE)
    made = directory / "share.ext4"
    mib = sum(path.lstat().st_size for path in tree.rglob("*")) // (1 << 20)
    # Inodes and the ends of blocks of 24,000 files take room as well.
    subprocess.run(
        ["mkfs.ext4", "-q", "-d", str(tree), str(made), f"{mib * 5 // 4 + 256}M"], check=True
    )
    shutil.rmtree(tree)
    return made


def _rehome(tree: Path) -> None:
    for name in ("python", "python3", "python3.11"):
        link = tree / "bin" / name
        if link.is_symlink():
            link.unlink()
            link.symlink_to("/usr/bin/python3.11")
    settings = tree / "pyvenv.cfg"
    text = re.sub(r"(?m)^home = .*$", "home = /usr/bin", settings.read_text())
    # A link of the tree that is measured on this machine: replaced, not written through.
    settings.unlink()
    settings.write_text(text)


def counted(directory: Path, share: Path) -> dict[str, dict[str, Any]]:
    """Return operations and bytes that the server sent, for each way to use the share."""
    with Machine.create("env", memory_mib=6144, disks=[share], root=directory) as machine:
        run = Shell(machine)
        run(PREPARE)
        ways = {
            "first import": IMPORT.format(MOUNT, environment.IMPORT_CHECK),
            "next import": IMPORT.format(MOUNT, environment.IMPORT_CHECK),
            "copied": f"tar -C {MOUNT} --exclude={IMAGE} -cf - . | cat >/dev/null",
            "image copied": f"cat {MOUNT}/{IMAGE} >/dev/null",
            "image, first import": f"mount -o loop,ro {MOUNT}/{IMAGE} {LOCAL} && "
            + IMPORT.format(LOCAL, environment.IMPORT_CHECK),
            "image, next import": IMPORT.format(LOCAL, environment.IMPORT_CHECK),
        }
        found = {}
        for way, line in ways.items():
            if "next" not in way:
                run(FRESH)
            before = run.asked()
            run(line)
            after = run.asked()
            found[way] = {name: after[name] - before[name] for name in after}
            print(way, found[way], flush=True)
        return found


class Shell:
    """Commands on the machine, and what its NFS client has asked for so far."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __call__(self, line: str) -> str:
        """Run a line as root, which must succeed."""
        return self.machine.run(["sh", "-c", line], timeout=1800).stdout

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
