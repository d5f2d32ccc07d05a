"""Hosts of a lab as RunPod's pods: no systemd, `ens1` between them, SSH published elsewhere."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import IO

from tests.ports import free_port
from vllm_ansible.lab import Lab
from vllm_ansible.lab.commands import SEARCH_PATH, podman
from vllm_ansible.lab.host import host_key

from .lab_machines import LabMachines

SSH = 22
# What the image of a pod starts, and its whole first process: sshd, and a wait that reaps.
INIT = """\
#!/bin/bash
ip link set eth1 down && ip link set eth1 name ens1 && ip link set ens1 up
mkdir -p /run/sshd && /usr/sbin/sshd
trap exit TERM INT
while :; do sleep infinity & wait; done
"""
# Nobody can ask for anything of systemd in a container's image.
WITHOUT = ("systemctl", "systemd-run", "journalctl", "loginctl")
SETUP = (
    f"rm -f $1/usr/sbin/init {' '.join(f'$1/usr/bin/{one}' for one in WITHOUT)}",
    f"printf '%s' '{INIT}' > $1/usr/sbin/init",
    "chmod 755 $1/usr/sbin/init",
)


def pod_lab(hosts: int, name: str, root: Path) -> Lab:
    """Return a running lab of pods; where it exists, containers that are gone are made anew."""
    return Lab.create(hosts, name, second_network=True, root=root, setup=SETUP)


class LabPods:
    """Each host is one pod at a time; its ports are published at ports of this machine.

    They are of its address in the lab's network, which pods reach too.
    """

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root = lab, root
        self.machines = LabMachines(lab)
        self.address = str(ipaddress.ip_network(lab.record.networks[0].subnet)[1])
        # Of a pod, by the port inside.
        self._doors: dict[tuple[str, int], _Door] = {}
        self._inside: dict[str, str] = {}
        # Hosts that were a pod before: the next one finds nothing of it.
        self._used: set[str] = set()
        # Where a network volume is kept, and where pods mount it: a pod that is alone leaves it to
        # the next ones, each of which has a copy.
        self.volume = root / "volume.tar"
        self.mounted = ""
        # What an image of pods has beside the lab's: paths here, by the path inside.
        self.files: dict[str, str] = {}

    def start(self, pod: str, rank: int | None) -> tuple[str, int, str]:
        """Rent the next free host."""
        self._inside[pod], overlay = self.machines.start(pod)
        if (name := self.machines.rented[pod]) in self._used:
            self._renew(name)
        if rank is None:
            self.lab.run(name, ["ip", "link", "delete", "ens1"])
        self._mount(name)
        for inside, here in self.files.items():
            podman("cp", here, f"{self.lab.record.host(name).container}:{inside}")
        return self.address, self.publish(pod, 0), overlay

    def expose(self, pod: str, private: int) -> int:
        """Publish another port of a pod; connections that stand end."""
        self._close(pod, private)
        door = self._doors[pod, private] = _Door(self.address, self._inside[pod], private)
        return door.port

    def publish(self, pod: str, port: int) -> int:
        """Publish its SSH at another port."""
        return self.expose(pod, SSH)

    def callers(self, pod: str, private: int) -> set[str]:
        """Return who has connected to a published port of a pod, by address."""
        return self._doors[pod, private].callers

    def restart(self, pod: str) -> None:
        """Make its container anew: disk, processes and host keys are gone."""
        name = self.machines.rented[pod]
        self._keep(name)
        self._renew(name)
        self._mount(name)

    def _mount(self, name: str) -> None:
        """Give a host what is on the volume."""
        if self.mounted and self.volume.exists():
            with self.volume.open("rb") as kept:
                self._tar(name, "-xf", stdin=kept)

    def _keep(self, name: str) -> None:
        """Take what a host has on the volume."""
        if self.mounted:
            with self.volume.open("wb") as kept:
                self._tar(name, "-cf", stdout=kept)

    def _tar(self, name: str, does: str, **ends: IO[bytes]) -> None:
        container, top = self.lab.record.host(name).container, self.mounted
        words = f"mkdir -p {top} && tar --numeric-owner -C {top} {does} - ."
        command = ["podman", "exec", "--interactive", container, "sh", "-c", words]
        path = {**os.environ, "PATH": SEARCH_PATH}
        subprocess.run(command, check=True, env=path, **ends)  # type: ignore[call-overload]

    def _renew(self, name: str) -> None:
        lab = self.lab
        host = lab.record.host(name)
        podman("rm", "--force", "--time", "0", "--volumes", host.container)
        # The lab keeps this outside of the container, so that packages are linked, not copied.
        shutil.rmtree(lab.cache.host_directory(lab.record.token, name))
        for key in host_key(lab.paths, host).parent.glob(f"{name}*"):
            key.unlink()
        lab.record = pod_lab(len(lab.record.hosts), lab.record.name, self.root).record

    def stop(self, pod: str) -> None:
        """Give its host back."""
        self._close_all(pod)
        if pod in self.machines.rented:
            self._keep(self.machines.rented[pod])
            self._used.add(self.machines.rented[pod])
        self.machines.stop(pod)

    def close(self) -> None:
        """Publish nothing any more."""
        for pod in {one for one, _ in self._doors}:
            self._close_all(pod)

    def _close_all(self, pod: str) -> None:
        for private in [port for one, port in self._doors if one == pod]:
            self._close(pod, private)

    def _close(self, pod: str, private: int) -> None:
        if door := self._doors.pop((pod, private), None):
            door.close()


class _Door(ThreadingTCPServer):
    """A port of this machine behind which is a port of a host."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: str, inside: str, private: int) -> None:
        self.inside = (inside, private)
        self.port = free_port(address)
        self.opened: list[socket.socket] = []
        self.callers: set[str] = set()
        super().__init__((address, self.port), _Carrier)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        for one in self.opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Carrier(BaseRequestHandler):
    """One connection through a door."""

    server: _Door

    def handle(self) -> None:
        self.server.callers.add(self.client_address[0])
        with suppress(OSError), socket.create_connection(self.server.inside, 10) as far:
            far.settimeout(None)
            self.server.opened += [self.request, far]
            back = threading.Thread(target=_carry, args=(far, self.request), daemon=True)
            back.start()
            _carry(self.request, far)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way to their end."""
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
