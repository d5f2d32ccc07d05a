"""A network namespace that leads nowhere, and a user in it; each attempt to leave is kept."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Of RFC 5737 and RFC 3849: documentation alone. The other end takes every packet and drops it.
ADDRESS, GATEWAY = "192.0.2.2/24", "192.0.2.1"
ADDRESS6, GATEWAY6 = "2001:db8::2/64", "2001:db8::1"
NOBODY = "02:00:00:00:00:01"
# Writes one line for each packet that leaves; what a kernel says of its own accord in IPv6
# (neighbours, routers, multicast listeners) is nobody's attempt.
WATCH = """
import socket, time
watch = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
watch.bind(("out", 0))
print("watching", flush=True)
while True:
    frame = watch.recv(65535)
    kind = int.from_bytes(frame[12:14], "big")
    if kind == 0x800:
        inside = frame[14 + (frame[14] & 15) * 4:]
        port, name = int.from_bytes(inside[2:4], "big"), []
        rest = inside[20:] if (frame[23], port) == (17, 53) else b""
        while rest and rest[0]:
            name.append(rest[1:1 + rest[0]].decode("ascii", "replace"))
            rest = rest[1 + rest[0]:]
        said = [socket.inet_ntoa(frame[30:34]), frame[23], port, ".".join(name)]
        print(*said, time.strftime("%T"), flush=True)
    elif kind == 0x86DD and not (frame[20] == 58 and 130 <= frame[54] <= 143 or frame[20] == 0):
        print(socket.inet_ntop(socket.AF_INET6, frame[38:54]), frame[20], flush=True)
"""


class Enclosure:
    """One namespace and one fresh user, both removed by `close`."""

    def __init__(self, directory: Path) -> None:
        self.name = f"airgap{os.getpid() % 100000}"
        self.log = directory / "attempts"
        self._settings = Path("/etc/netns") / self.name
        self._settings.mkdir(parents=True)
        (self._settings / "resolv.conf").write_text(f"nameserver {GATEWAY}\n")
        _run("ip", "netns", "add", self.name)
        for words in (
            "link set lo up",
            "link add out type veth peer name nowhere",
            f"address add {ADDRESS} dev out",
            f"address add {ADDRESS6} dev out nodad",
            "link set nowhere up",
            "link set out up",
            # Else an attempt would end as a question who the gateway is.
            f"neighbour add {GATEWAY} lladdr {NOBODY} dev out nud permanent",
            f"neighbour add {GATEWAY6} lladdr {NOBODY} dev out nud permanent",
            f"route add default via {GATEWAY}",
            f"-6 route add default via {GATEWAY6}",
        ):
            _run("ip", "-n", self.name, *words.split())
        _run("useradd", "--create-home", "--shell", "/bin/bash", self.name)
        self.home = Path(pwd.getpwnam(self.name).pw_dir)
        self._watch = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-c", WATCH],
            stdout=self.log.open("w"),
        )
        while "watching" not in self.log.read_text():
            assert self._watch.poll() is None

    def attempts(self) -> list[str]:
        """Return where anybody wanted to go: address, protocol, port, name looked up, time."""
        return self.log.read_text().splitlines()[1:]

    def run(self, *command: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run as the user, with a login's environment and nothing else."""
        user = ["runuser", "-u", self.name, "--", "env", "-i", f"HOME={self.home}"]
        user += [f"USER={self.name}", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"]
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *user, *command],
            cwd=directory or self.home,
            capture_output=True,
            text=True,
            check=False,
        )

    def close(self) -> None:
        """End what still runs there, and remove user and namespace."""
        self._watch.terminate()
        self._watch.wait()
        said = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        for process in said.stdout.split():
            os.kill(int(process), signal.SIGKILL)
        _run("ip", "netns", "delete", self.name)
        _run("userdel", "--remove", self.name)
        shutil.rmtree(self._settings)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


def lacking(programs: Sequence[str] = ("ip", "runuser", "useradd")) -> list[str]:
    """Return what this machine lacks to make one."""
    return [name for name in programs if shutil.which(name) is None]
