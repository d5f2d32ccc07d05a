"""Plays of the role nvidia_driver on one host, with the stand-ins that it is tried with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).parents[2]
EMULATORS = ROOT / "tests/emulators"
PLAYBOOK = Path(__file__).parent / "playbooks/nvidia_driver.yml"
PORT = 8399
MANAGE = {"nvidia_driver_mode": "manage", "nvidia_driver_reboot": "never"}
SERVER = f"""[Service]
WorkingDirectory=/srv/nvidia
ExecStart=/usr/bin/python3 -m http.server {PORT}
[Install]
WantedBy=multi-user.target
"""


class Shell(Protocol):
    """Runs one line as root on the host, and returns what it printed."""

    def __call__(self, line: str, check: bool = True) -> str: ...


def stand_ins(directory: Path, kernel: str, system: str = "debian") -> tuple[str, bytes]:
    """Build a repository for a kernel; return its key's fingerprint and a tar of a host's files."""
    lacks = [one for one in ("gpg", "dpkg-deb", "dpkg-scanpackages") if shutil.which(one) is None]
    if lacks:
        pytest.skip(f"stand-in packages need {', '.join(lacks)}")
    builder = [sys.executable, str(EMULATORS / "driver_repository.py"), str(directory)]
    argv = [*builder, "--kernel", kernel, "--system", system]
    fingerprint = subprocess.check_output(argv, text=True).strip()
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(directory / "repository", "srv/nvidia")
        emulator = archive.gettarinfo(EMULATORS / "gpu_host.sh", "usr/local/sbin/gpu_host.sh")
        emulator.mode = 0o755
        archive.addfile(emulator, (EMULATORS / "gpu_host.sh").open("rb"))
        unit = tarfile.TarInfo("etc/systemd/system/stand-in.service")
        unit.size = len(SERVER)
        archive.addfile(unit, BytesIO(SERVER.encode()))
    return fingerprint, packed.getvalue()


@dataclass
class Driven:
    """One host, its repository, and plays of the role on it."""

    name: str
    inventory: Path
    shell: Shell
    fingerprint: str
    runs: Path
    # Whether the last thing done here was a play that found all in order.
    sound: bool = False

    def sh(self, line: str, check: bool = True) -> str:
        """Run one line as root on the host."""
        self.sound = False
        return self.shell(line, check)

    def apt(self, *words: str) -> None:
        """Install as an administrator would."""
        options = "--yes --allow-downgrades --allow-change-held-packages"
        self.sh(f"DEBIAN_FRONTEND=noninteractive apt-get install {options} {' '.join(words)}")

    def play(self, check: bool = False, **said: Any) -> dict[str, Any]:
        """Play the role; return failed, changed, and each task's result by its name."""
        address = f"http://127.0.0.1:{PORT}"
        variables = {
            "nvidia_driver_repository": address,
            "nvidia_driver_key_url": f"{address}/key.asc",
            "nvidia_driver_key_fingerprint": self.fingerprint,
            **said,
        }
        program = Path(sys.executable).with_name("ansible-playbook")
        argv = [str(program), "-i", str(self.inventory), str(PLAYBOOK), "-e"]
        argv += [json.dumps(variables), *(["--check"] if check else [])]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "VLLM_ANSIBLE_RUNS_DIR": str(self.runs),
        }
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        start = done.stdout.find("{\n")
        assert start >= 0, done.stdout + done.stderr
        told = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
        tasks = [task for play in told["plays"] for task in play["tasks"]]
        results = {one["task"]["name"]: one["hosts"][self.name] for one in tasks if one["hosts"]}
        stats = told["stats"][self.name]
        # A check asks for less than a managed host has.
        self.sound = not stats["failures"] and not check and "manage" in said.values()
        return {"failed": bool(stats["failures"]), "changed": stats["changed"], "tasks": results}

    def missed(self, **said: Any) -> list[str]:
        """Return what the gate misses: the identifiers, in order."""
        judged = self.play(**said)["tasks"]["nvidia_driver : Judge the driver"]
        return [one["what"].rpartition("(")[2].rstrip(")") for one in judged.get("missed", [])]
