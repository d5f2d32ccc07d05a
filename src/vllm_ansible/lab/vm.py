"""A virtual machine with a Debian kernel of its own, for NFS, caches and modules.

It is emulated in software, so that it boots wherever qemu runs; it is about ten times slower than
the machine it runs on. What it writes to its disk is gone when it stops.
"""

import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from .commands import LabError, require_root, require_tools, run
from .host import SSHD, seed_archive
from .keys import ensure_key, ssh_options, write_known_hosts
from .machine_image import MachineImage, ensure_machine_image
from .paths import REPOSITORY
from .process import ProcessRecord, running, start, stop
from .record import exclusive

TOOLS = ("qemu-system-x86_64", "mmdebstrap", "mkfs.ext4", "ssh", "ssh-keygen")
DEFAULT_NAME = "vm"
Progress = Callable[[str], None]


@dataclass
class MachineRecord:
    """One running machine: its process and the loopback port that leads to its sshd."""

    process: ProcessRecord
    port: int


@dataclass(frozen=True)
class Cable:
    """A wire between two machines, eth1 of each: the socket of this end, and that of the other."""

    here: Path
    there: Path

    def arguments(self) -> list[str]:
        """Return qemu's arguments for this end."""
        ends = f"local.type=unix,local.path={self.here},remote.type=unix,remote.path={self.there}"
        # Every machine has the same hardware addresses unless told otherwise.
        digest = hashlib.sha256(str(self.here).encode()).hexdigest()
        mac = ":".join(["52:54:00", digest[:2], digest[2:4], digest[4:6]])
        return [
            *("-netdev", f"dgram,id=cable,{ends}"),
            *("-device", f"virtio-net-pci,netdev=cable,mac={mac}"),
        ]


class Machine:
    """One virtual machine and what can be done with it."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.state = root / "state" / "vm" / name
        self.key = self.state / "id_ed25519"
        self.known_hosts = self.state / "known_hosts"
        self.console = self.state / "console.log"
        self.lock = self.state.parent / f".{name}.lock"

    @classmethod
    def create(
        cls,
        name: str = DEFAULT_NAME,
        *,
        memory_mib: int = 1024,
        cable: Cable | None = None,
        disks: Sequence[Path] = (),
        root: Path = REPOSITORY,
        progress: Progress = lambda _: None,
        timeout: float = 300,
    ) -> "Machine":
        """Return a machine that answers SSH, booting it unless it runs.

        disks are raw images that it finds as /dev/vdc and on; what it writes there is dropped.
        """
        require_root()
        require_tools(TOOLS)
        machine = cls(name, root)
        with exclusive(machine.lock):
            fresh = machine.record() is None
            if fresh:
                image = ensure_machine_image(progress)
                progress("booting the virtual machine")
                machine._boot(image, memory_mib, cable, disks)
            try:
                machine._wait_for_ssh(timeout)
            except BaseException:
                # Nobody else has it to stop it. Its console stays, to be read.
                if fresh and (record := machine.record()):
                    stop(record.process)
                raise
        return machine

    def __enter__(self) -> "Machine":
        """Hand the machine to a test."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it, whatever the test did."""
        self.down()

    def record(self) -> MachineRecord | None:
        """Return the running machine, or None where there is none."""
        try:
            data = json.loads((self.state / "vm.json").read_text())
        except FileNotFoundError:
            return None
        record = MachineRecord(ProcessRecord(**data["process"]), data["port"])
        return record if running(record.process) else None

    def _boot(
        self, image: MachineImage, memory_mib: int, cable: Cable | None, disks: Sequence[Path]
    ) -> None:
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port: int = probe.getsockname()[1]
        self._write_seed(port)
        argv = machine_command(image, self.state, port, memory_mib)
        argv += cable.arguments() if cable else []
        for disk in disks:
            argv += ["-drive", f"file={disk},format=raw,if=virtio,snapshot=on"]
        process = start(argv, self.console.exists, timeout=20)
        text = json.dumps(asdict(MachineRecord(process, port)))
        (self.state / "vm.json").write_text(text)

    def _write_seed(self, port: int) -> None:
        own = self.state / "host_key"
        public, operator = ensure_key(own, self.name), ensure_key(self.key, self.name)
        files = {
            "etc/ssh/ssh_host_ed25519_key": (0o600, own.read_text()),
            "etc/ssh/ssh_host_ed25519_key.pub": (0o644, public + "\n"),
            "etc/ssh/sshd_config.d/lab.conf": (0o644, SSHD),
            "root/.ssh/authorized_keys": (0o600, operator + "\n"),
        }
        self.console.unlink(missing_ok=True)
        seed = self.state / "seed.tar"
        seed.touch(mode=0o600)
        seed.write_bytes(seed_archive(files, {}))
        write_known_hosts(self.known_hosts, [([f"[127.0.0.1]:{port}"], public)])

    def _wait_for_ssh(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.record() is None or self.run(["true"], check=False, timeout=60).returncode != 0:
            ended = self.record() is None
            if ended or time.monotonic() > deadline:
                lines = self.console.read_text(errors="replace").splitlines()
                why = "ended" if ended else "did not answer SSH"
                raise LabError(
                    f"The virtual machine {self.name} {why} within {timeout:.0f} s; "
                    f"its console ends: {' / '.join(lines[-3:])} (all of it: {self.console})"
                )
            time.sleep(0.5)  # qemu accepts the connection long before a sshd is there

    def ssh(self) -> list[str]:
        """Return the command that opens a shell on the machine."""
        options = ssh_options(self.key, self.known_hosts)
        return ["ssh", *options, "-p", str(self._running().port), "root@127.0.0.1"]

    def variables(self) -> dict[str, str | int]:
        """Return what an inventory says of the machine as a host."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self._running().port,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.known_hosts} "
            "-o StrictHostKeyChecking=yes",
            # Emulated in software, it answers in seconds and not in tenths.
            "ansible_timeout": 120,
            "ansible_ssh_retries": 5,
        }

    def _running(self) -> MachineRecord:
        record = self.record()
        if record is None:
            raise LabError(
                f"No virtual machine {self.name!r} runs; start it with "
                f"`python -m vllm_ansible.lab vm up --name {self.name}`."
            )
        return record

    def run(
        self, argv: Sequence[str], *, check: bool = True, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine over SSH, as root."""
        return run([*self.ssh(), "--", shlex.join(argv)], check=check, timeout=timeout)

    def down(self) -> None:
        """Stop the machine at once and remove its state; its disk image stays for the next one."""
        with exclusive(self.lock):
            record = self.record()
            if record:
                stop(record.process)
            if self.state.exists():
                shutil.rmtree(self.state)
        self.lock.unlink(missing_ok=True)


def machine_command(image: MachineImage, state: Path, port: int, memory_mib: int) -> list[str]:
    """Return the command line of qemu."""
    disk = f"file={image.disk},format=raw,if=virtio,snapshot=on"
    seed = f"file={state / 'seed.tar'},format=raw,if=virtio,readonly=on"
    return [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max"),
        *("-smp", str(min(4, os.cpu_count() or 1)), "-m", str(memory_mib)),
        *("-nodefaults", "-display", "none", "-device", "virtio-rng-pci"),
        *("-serial", f"file:{state / 'console.log'}"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
        *("-append", "root=/dev/vda rw console=ttyS0 net.ifnames=0 quiet"),
        *("-drive", disk, "-drive", seed),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-10.0.2.15:22"),
        *("-device", "virtio-net-pci,netdev=net"),
    ]
