"""Build the disk of the virtual machine: Debian with a kernel that has what this one may lack."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .commands import LabError, run
from .image import PACKAGES, SUITE, bootstrap, debian_sources, recipe_digest
from .paths import cache_root
from .record import exclusive

ARCHITECTURE = "amd64"
MODULES = ("nfs", "nfsd", "fscache", "cachefiles")
KERNEL_PACKAGES = (
    *("linux-image-cloud-amd64", "initramfs-tools", "udev", "kmod", "e2fsprogs"),
    *("nfs-common", "nfs-kernel-server", "cachefilesd"),
)
DISK_SIZE = "6G"  # sparse: what is not written takes no room
NETWORK = """\
[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
"""
SEED = """\
[Unit]
Description=Unpack the keys of this lab from the second disk
DefaultDependencies=no
After=local-fs.target
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/usr/bin/tar --extract --file /dev/vdb --directory /
[Install]
WantedBy=multi-user.target
"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class MachineImage:
    """A disk that is only ever read, with its kernel beside it."""

    directory: Path

    @property
    def disk(self) -> Path:
        """The root file system."""
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        """Debian's kernel."""
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Its first file system."""
        return self.directory / "initrd.img"


# Timers that wake up in the first minutes cost an emulated machine dearly.
TIMERS = ("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim")
SETUP = (
    "systemctl --root=$1 enable systemd-networkd lab-seed",
    f"systemctl --root=$1 mask {' '.join(f'{one}.timer' for one in TIMERS)}",
    "rm -f $1/etc/ssh/ssh_host_*",
    "install -d -m 0700 $1/root/.ssh",
)
FILES = {
    "etc/systemd/network/10-lab.network": NETWORK,
    "etc/systemd/system/lab-seed.service": SEED,
    "etc/fstab": "/dev/vda / ext4 defaults,noatime 0 1\n",
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 vm\n",
    "etc/hostname": "vm\n",
}


def setup_hooks(directory: Path) -> list[str]:
    """Write the machine's few files and return what makes them part of it."""
    hooks = []
    for number, (name, content) in enumerate(FILES.items()):
        source = directory / str(number)
        source.write_text(content)
        source.chmod(0o644)
        hooks.append(f"upload {source} /{name}")
    return [*hooks, *SETUP]


def ensure_machine_image(progress: Progress) -> MachineImage:
    """Return the disk, building it where this recipe was never built."""
    found = run(["dpkg", "--print-architecture"]).stdout.strip()
    if found != ARCHITECTURE:
        raise LabError(f"The lab's virtual machine is made for {ARCHITECTURE}, found {found}.")
    packages, sources = (*PACKAGES, *KERNEL_PACKAGES), debian_sources()
    setup = [*(f"{name} {content}" for name, content in FILES.items()), *SETUP, DISK_SIZE]
    digest = recipe_digest(SUITE, packages, setup, sources)
    image = MachineImage(cache_root() / "vm" / digest)
    with exclusive(cache_root() / "vm" / ".lock"):
        if not image.directory.exists():
            progress("building the virtual machine's disk (once, about two minutes)")
            build(image, packages, sources)
    return image


def build(image: MachineImage, packages: tuple[str, ...], sources: list[str]) -> None:
    """Make the file system, and give it its name only when it is complete."""
    parent = image.directory.parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=".new-") as temporary:
        work = Path(temporary)
        (work / "files").mkdir()
        root = work / "root"
        bootstrap(root, packages, setup_hooks(work / "files"), sources)
        made = MachineImage(work / "image")
        made.directory.mkdir(mode=0o755)
        for target, pattern in ((made.kernel, "vmlinuz-*"), (made.initrd, "initrd.img-*")):
            shutil.copyfile(next((root / "boot").glob(pattern)), target)
        run(["mkfs.ext4", "-q", "-d", str(root), str(made.disk), DISK_SIZE])
        made.directory.rename(image.directory)
