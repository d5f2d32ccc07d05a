"""Alerts by their real causes, from a play of the stage to Alertmanager; the engine is a stand-in.

Those that a real engine can cause are in `tests/flows/test_observe.py`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.clone import wait_until
from tests.ports import free_port
from tests.unit.door.running import ALICE, client, make_certificate
from tests.unit.door.test_role import ROUTE
from tests.unit.router.client import listens
from tests.unit.router.running import EMULATOR, HAPROXY
from tests.unit.router.running import ROOT as REPOSITORY
from tests.unit.router.site import KEY
from vllm_ansible.door.clients import Client

from .conftest import PROGRAMS, WatchedSite
from .harms import disk, fill, link, mounted

# A full disk calls after five minutes.
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not all(PROGRAMS.values()) or HAPROXY is None or not shutil.which("mkfs.ext4"),
        reason="no prometheus, alertmanager, node exporter, haproxy or mkfs.ext4 here",
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes disks and links"),
]
MINUTE = 60
# More than a page of a file system holds.
PAGE_LINES = 200
LINK = f"wat{os.getpid()}"[:15]
HARMED = {"CertificateEnds", "CountsUnwritten", "DiskFull", "LinkSlow", "RankEjected"}


def of(entry: Client) -> dict[str, str]:
    return {"key_sha256": entry.key_sha256}


class CalledSite(WatchedSite):
    """One host with two ranks, their router, and a door before it."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        super().__init__(directory, run_dir)
        self.clients, self.door_port = directory / "clients.yml", free_port()
        self.clients.write_text(json.dumps({"clients": {"alice": of(client(ALICE))}}))
        self.clients.chmod(0o600)
        self.journals = self.cluster_dir / "door/usage"

    def serve(self) -> None:
        """Start ranks, router, door and what watches them, by their plays."""
        self.start_ranks()
        self.played(self.play())
        self.route()
        self.played(self.observe(door_port=self.door_port))

    def route(self, **variables: str) -> None:
        given = {
            "site_head": "here",
            "site_validated": True,
            "site_lock_seen": time.time() + 86400,
            "observe_mode": "run",
            "door_clients_file": str(self.clients),
            "door_port": self.door_port,
            "door_haproxy": HAPROXY,
        }
        self.played(self.play(play=ROUTE, **given, **variables))

    @staticmethod
    def played(ran: tuple[int, str, object]) -> None:
        assert ran[0] == 0, ran[1]

    def complete(self) -> int:
        """Ask the door for an answer; return its status."""
        # Whose certificate it is, is not the question here.
        context = ssl._create_unverified_context()  # noqa: S323
        door = http.client.HTTPSConnection("127.0.0.1", self.door_port, timeout=60, context=context)
        body = json.dumps({"model": "m", "prompt": "p", "max_tokens": 2})
        with contextlib.closing(door):
            door.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {ALICE}"})
            return door.getresponse().status

    def start_rank_again(self, number: int) -> None:
        port = self.engine["ports"]["worker_first"] + number
        command = [sys.executable, str(EMULATOR), "--ports", str(port), "--key", KEY]
        self.processes.append(subprocess.Popen(command, cwd=REPOSITORY))
        wait_until(lambda: listens(port), MINUTE, "the rank again")

    def end(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()
        self.end_supervisor()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[CalledSite]:
    # Sockets have short paths only.
    made = CalledSite(tmp_path, Path(tempfile.mkdtemp(prefix="oc")))
    try:
        yield made
    finally:
        made.end()


def test_each_harm_to_host_rank_and_door_calls_with_its_words(watched: CalledSite) -> None:
    """One story: what takes longest begins first, the others meanwhile."""
    directory = watched.directory
    disk_at = directory / "disk"
    with (
        link(LINK) as run_at,
        disk(directory / "image", disk_at),
        mounted(watched.journals, "-t", "tmpfs", "-o", "size=64k", "tmpfs"),
    ):
        run_at(10000)
        watched.serve()
        assert watched.complete() == 200
        # Longer than each rule waits but that of the disk, which is looked at again below.
        time.sleep(1.5 * MINUTE)
        assert not HARMED & set(watched.arrived())

        began = time.monotonic()
        full = [fill(disk_at), fill(watched.journals)]
        run_at(1000)
        # A line still goes where the page of the last one has room.
        assert {watched.complete() for _ in range(PAGE_LINES)} == {200}
        watched.processes[1].kill()
        make_certificate(directory)
        given = {"certificate": "tls.crt", "key": "tls.key"}
        watched.route(**{f"door_{one}_file": str(directory / name) for one, name in given.items()})

        def called(name: str, says: str, minutes: float) -> None:
            wait_until(lambda: name in watched.arrived(), minutes * MINUTE, name)
            print(f"{name} after {time.monotonic() - began:.0f} s", flush=True)
            assert says in watched.arrived()[name]["summary"]

        called("CountsUnwritten", f"127.0.0.1:{watched.door_port} cannot write", 2)
        called("CertificateEnds", "the certificate of the door ends in 1d 23h", 2)
        called("RankEjected", "engine chat: the router sends nothing to rank-1", 3)
        called("LinkSlow", f"{LINK} of here has negotiated 125MB/s", 3)
        assert "DiskFull" not in watched.arrived()
        called("DiskFull", f"{disk_at} of here has", 8)

        for one in full:
            one.unlink()
        run_at(10000)
        watched.start_rank_again(1)
        over = HARMED - {"CertificateEnds"}
        calm: Callable[[], bool] = lambda: not over & set(watched.arrived())  # noqa: E731
        wait_until(calm, 10 * MINUTE, "calm")
        assert "CertificateEnds" in watched.arrived()
