"""Ranks of a measurement of collectives on the hosts of a lab, led from this machine.

The program and the coordinator are those of the role collectives; only what starts them differs,
so that many measurements can follow each other with the ranks of the first.
"""

import ipaddress
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from vllm_ansible.node.collectives import channel
from vllm_ansible.node.collectives.coordinator import Coordinator
from vllm_ansible.node.collectives.links import join, measure
from vllm_ansible.node.collectives.operations import Wishes

from .cache import MOUNT
from .commands import LabError, run
from .keys import ssh_options
from .lab import Lab
from .paths import REPOSITORY

PYTHON = Path("/usr/bin/python3.11")
PROGRAM = REPOSITORY / "roles" / "collectives" / "files"
PORTS = (20012, 20013)
# A link this slow leaves both processors of a small machine idle: 16 hosts of it are 400 Mbit/s.
RATE = "50mbit"


def torch_environment(lab: Lab) -> Path:
    """Return a Python with PyTorch, as the lab's hosts see it; made once on this machine."""
    if not PYTHON.exists():
        raise LabError(f"PyTorch for lab hosts needs {PYTHON}, the Python that they have.")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise LabError("uv is expected beside this Python; run `make dev`.")
    lock = (REPOSITORY / "requirements" / "engine-cpu.txt").read_text()
    version = next(line.split()[0] for line in lock.splitlines() if line.startswith("torch=="))
    name = version.replace("==", "-")
    place = lab.cache.root / name
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        run([uv, "venv", "--quiet", "--no-project", "--python", str(PYTHON), str(place)])
        sources = lab.sources().environment
        links = [one for one in sources.get("UV_FIND_LINKS", "").split(",") if one]
        # A directory that was named holds torch already; PyTorch's index need not be reachable.
        where = [f"--find-links={one}" for one in links] or ["--torch-backend=cpu"]
        subprocess.run(  # noqa: S603 argv of our own
            [
                uv,
                "pip",
                "install",
                "--quiet",
                f"--python={place / 'bin/python'}",
                *where,
                version,
                "numpy",
            ],
            env={**os.environ, **sources},
            check=True,
        )
        (place / "complete").touch()
    return MOUNT / name / "bin" / "python"


@dataclass
class Ranks:
    """The ranks of some hosts; use it as a context, which ends them."""

    lab: Lab
    hosts: tuple[str, ...]
    per_host: int = 1
    wishes: Wishes = field(default_factory=Wishes)
    start_seconds: float = 0.0

    def __enter__(self) -> "Ranks":
        """Start the ranks and let them form their groups."""
        started = time.monotonic()
        python = torch_environment(self.lab)
        network = self.lab.record.data_network
        here = str(next(ipaddress.ip_network(network.subnet).hosts()))
        self._stack = ExitStack()
        with ExitStack() as stack:
            place = self.lab.cache.root / f"ranks-{self.lab.record.token}"
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            shutil.copytree(PROGRAM, place, dirs_exist_ok=True)
            shutil.copy(channel.__file__, place)
            secret = secrets.token_hex(16)
            (place / "key").write_text(secret)
            self.lead = Coordinator(dict.fromkeys(self.hosts, self.per_host))
            stack.callback(self.lead.close)
            with socket.create_server((here, PORTS[0]), backlog=64) as listener:
                for host in self.hosts:
                    argv = [str(python), f"{MOUNT / place.name}/rank.py"]
                    process = self._start(host, [*argv, *self._options(host, here, place.name)])
                    stack.callback(self._end, process)
                self.lead.gather(listener, channel.key_of(secret.encode()), 600)
            join(self.lead, (self.lab.address(self.hosts[0]), PORTS[1]))
            self._stack = stack.pop_all()
        self.start_seconds = time.monotonic() - started
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hang up on the ranks, which ends them, and wait for that."""
        self.lead.close()
        self._stack.close()

    def measure(self) -> dict[str, Any]:
        """Return what a run of the role's coordinator would, with the links as they are now."""
        return measure(self.lead, self.wishes, lambda *_, **__: None)

    @property
    def _interface(self) -> str:
        record = self.lab.record
        return f"eth{record.networks.index(record.data_network)}"

    def _options(self, host: str, coordinator: str, place: str) -> list[str]:
        return [
            f"--coordinator={coordinator}",
            f"--port={PORTS[0]}",
            f"--key-file={MOUNT / place / 'key'}",
            f"--host={host}",
            f"--address={self.lab.address(host)}",
            f"--interface={self._interface}",
            "--backend=gloo",
            f"--ranks={self.per_host}",
        ]

    def _start(self, host: str, argv: list[str]) -> subprocess.Popen[bytes]:
        record = self.lab.record
        variables = [f"GLOO_SOCKET_IFNAME={self._interface}", "OMP_NUM_THREADS=1"]
        options = ssh_options(self.lab.paths.key, self.lab.paths.known_hosts)
        login = f"root@{self.lab.address(host, record.networks[0].role)}"
        return subprocess.Popen(  # noqa: S603 argv of our own
            ["ssh", *options, login, "--", "env", *variables, *argv],  # noqa: S607 found on PATH
            stdin=subprocess.DEVNULL,
        )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
