"""Other ways to bring a model to the hosts of a lab, by the programs people use for it.

Each runs in the network of its host, so on the same links as what it is compared with; files are
written to this machine's disk. Every host checks the sha256 of every file at its end, as ours does.
Needs rsync, aria2, python3-libtorrent, nfs-ganesha-vfs and libnfs-utils of Debian 12 or newer.
"""

from __future__ import annotations

import ipaddress
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from processors import busy_share
from tracker import tracker

from vllm_ansible.lab import Lab
from vllm_ansible.lab.host import inspect_host

# The Python of the distribution: its libtorrent is in no other one.
SYSTEM_PYTHON = "/usr/bin/python3"
TORRENT_HOST = str(Path(__file__).with_name("torrent_host.py"))
RSYNC_PORT = 873
AT_ONCE = 16
# With two, and eight hosts on a slow line, nfs-cp gave up reads.
NFS_AT_ONCE = 1
START_SECONDS = 30.0

RSYNCD = """\
use chroot = no
[model]
path = {path}
uid = root
gid = root
"""
GANESHA = """\
NFS_CORE_PARAM {{ Protocols = 4; Bind_addr = {address}; NFS_Port = 2049; Enable_NLM = false;
  Enable_RQUOTA = false; Enable_UDP = None; }}
NFSv4 {{ Graceless = true; }}
EXPORT {{
  Export_Id = 1; Path = {path}; Pseudo = /model; Access_Type = RW; Squash = No_Root_Squash;
  Protocols = 4; Transports = TCP; SecType = sys; FSAL {{ Name = VFS; }}
}}
"""


class Others:
    """The other ways, for one lab and one model."""

    def __init__(self, lab: Lab, tree: Path, files: list[dict[str, Any]], model_url: str) -> None:
        """model_url: below it the hub has the files."""
        self.lab, self.tree, self.files, self.model_url = lab, tree, files, model_url
        self.hosts = [host.name for host in lab.record.hosts]
        self.first, self.rest = self.hosts[0], self.hosts[1:]
        self.sides: dict[str, Callable[[Path, ExitStack], None]] = {
            "rsync": self.rsync,
            "shared": self.shared,
            "libtorrent": self.libtorrent,
            "aria2": self.aria2,
        }

    def measure(self, side: str) -> dict[str, float]:
        """Bring the model to all hosts once; return seconds, and processor seconds in all."""
        used = processor_seconds()
        with TemporaryDirectory() as folder, ExitStack() as stack:
            place = Path(folder)
            for host in self.hosts:
                (place / host).mkdir()
            busy = busy_share()
            started = time.monotonic()
            self.sides[side](place, stack)
            seconds = time.monotonic() - started
            share = busy()
        return {
            "seconds": round(seconds, 2),
            "processor_seconds": round(processor_seconds() - used, 1),
            "busy": round(share, 2),
        }

    def rsync(self, place: Path, stack: ExitStack) -> None:
        """One host from the hub; then all others at once from that one, by rsync."""
        self.from_hub(place)
        settings = place / "rsyncd.conf"
        settings.write_text(RSYNCD.format(path=place / self.first))
        address = self.lab.address(self.first)
        daemon = ["rsync", "--daemon", "--no-detach", f"--config={settings}"]
        stack.enter_context(self.running(self.first, [*daemon, f"--address={address}"]))
        self.wait_for(address, RSYNC_PORT)
        source = f"rsync://{address}/model/"
        # Weights do not compress, and there is nothing yet to compare them with.
        copy = ["rsync", "--whole-file", "--recursive", source]
        self.everywhere({host: [*copy, f"{place / host}/"] for host in self.rest})
        self.check(place, self.hosts)

    def shared(self, place: Path, stack: ExitStack) -> None:
        """One host from the hub into a directory that it serves by NFS; all others read that."""
        self.from_hub(place)
        settings = place / "ganesha.conf"
        address = self.lab.address(self.first)
        settings.write_text(GANESHA.format(address=address, path=place / self.first))
        server = ["ganesha.nfsd", "-F", "-f", str(settings), "-L", str(place / "ganesha.log")]
        stack.enter_context(self.running(self.first, [*server, "-p", str(place / "ganesha.pid")]))
        self.wait_for(address, 2049)
        names = [one["name"] for one in self.files]
        url = f"nfs://{address}/model"
        copies = {
            host: [
                *("xargs", "-P", str(NFS_AT_ONCE), "-I{}", "nfs-cp"),
                *(f"{url}/{{}}?version=4", f"{place / host}/{{}}"),
            ]
            for host in self.rest
        }
        self.everywhere(copies, "\n".join(names))
        self.check(place, self.hosts)

    def libtorrent(self, place: Path, stack: ExitStack) -> None:
        """All from the hub as web seed and from each other, by libtorrent."""
        torrent = self.torrent(place, stack)
        take = [SYSTEM_PYTHON, TORRENT_HOST, "take", str(torrent)]
        found = [
            stack.enter_context(
                self.running(host, [*take, str(place / host), self.lab.address(host)])
            )
            for host in self.hosts
        ]
        for process in found:
            if process.stdout is None or process.stdout.readline() != "whole\n":
                raise SystemExit("libtorrent ended without a word; see its error above")
        self.check(place, self.hosts)

    def aria2(self, place: Path, stack: ExitStack) -> None:
        """All from the hub as web seed and from each other, by aria2."""
        torrent = self.torrent(place, stack)
        touch = place / "touch"
        touch.write_text('#!/bin/sh\ntouch "$WHOLE"\n')
        touch.chmod(0o755)
        options = ["--enable-dht=false", "--bt-enable-lpd=false", "--seed-ratio=0.0", "--quiet"]
        options += ["--file-allocation=none", "--bt-max-peers=0", "--bt-request-peer-speed-limit=0"]
        options += ["--bt-tracker-interval=2", f"--on-bt-download-complete={touch}"]
        for host in self.hosts:
            command = ["env", f"WHOLE={place / host}.whole", "aria2c", *options]
            command += [f"--dir={place / host}", f"--interface={self.lab.address(host)}"]
            stack.enter_context(self.running(host, [*command, str(torrent)]))
        while not all(Path(f"{place / host}.whole").exists() for host in self.hosts):
            time.sleep(0.05)
        self.check(place, self.hosts)

    def torrent(self, place: Path, stack: ExitStack) -> Path:
        """Return a description of the model; making it is not counted in their disfavour."""
        web_seed, _, name = self.model_url.rpartition("/")
        here = next(ipaddress.ip_network(self.lab.record.data_network.subnet).hosts())
        announce = stack.enter_context(tracker(str(here)))
        out = place / "model.torrent"
        command = [SYSTEM_PYTHON, TORRENT_HOST, "make", str(self.tree), name, f"{web_seed}/"]
        subprocess.run([*command, announce, str(out)], check=True)
        return out

    def from_hub(self, place: Path) -> None:
        """Bring the model to the first host, over as many connections as ours has."""
        command = [
            "curl",
            "-fL",
            "--no-progress-meter",
            "--parallel",
            "--parallel-max",
            str(AT_ONCE),
        ]
        for one in self.files:
            command += ["-o", str(place / self.first / one["name"])]
            command += [f"{self.model_url}/{one['name']}"]
        self.everywhere({self.first: command})

    def inside(self, host: str, command: Sequence[str]) -> list[str]:
        """Return a command that runs in the network of a host."""
        found = inspect_host(self.lab.record.host(host))
        if not found:
            raise SystemExit(f"{host} is gone")
        return ["nsenter", f"--net=/proc/{found['State']['Pid']}/ns/net", *command]

    def everywhere(self, commands: dict[str, list[str]], text: str = "") -> None:
        """Run a command at each host, all at once, until all have ended well."""
        found = []
        for host, command in commands.items():
            process = subprocess.Popen(
                self.inside(host, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            if process.stdin:
                process.stdin.write(text)
                process.stdin.close()
            found.append(process)
        ended = [process.wait() for process in found]
        if any(ended):
            raise SystemExit(f"{sorted(commands)}: a command ended with {ended}")

    @contextmanager
    def running(self, host: str, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        """Keep a command going at a host."""
        process = subprocess.Popen(self.inside(host, command), stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def wait_for(self, address: str, port: int) -> None:
        """Wait until a server takes connections."""
        until = time.monotonic() + START_SECONDS
        probe = ["bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
        while subprocess.run(
            self.inside(self.first, probe), stderr=subprocess.DEVNULL, check=False
        ).returncode:
            if time.monotonic() > until:
                raise SystemExit(f"{address}:{port} does not answer after {START_SECONDS} s")
            time.sleep(0.05)

    def check(self, place: Path, hosts: Sequence[str]) -> None:
        """Read every file of every host and compare its sha256, all hosts at once."""
        commands = {}
        for host in hosts:
            top = place / host
            sums = place / f"{host}.sums"
            found = {path.name: path for path in top.rglob("*") if path.is_file()}
            lines = [f"{one['sha256']}  {found[one['name']]}\n" for one in self.files]
            sums.write_text("".join(lines))
            commands[host] = ["sha256sum", "--check", "--quiet", str(sums)]
        self.everywhere(commands)


def processor_seconds() -> float:
    """Return what all children that ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
