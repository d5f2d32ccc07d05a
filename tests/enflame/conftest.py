"""A machine with Enflame devices, as far as stand-ins go: mounts and processes of its own.

The plays and their modules are real and run as root. The bus, the kernel's modules, the vendor's
installer and efsmi are those of tests/emulators/enflame, in a mount namespace over this machine's
file systems: nothing of it is seen outside, and nothing of it stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EMULATORS = ROOT / "tests/emulators/enflame"
PLAYBOOKS = Path(__file__).parent / "playbooks"
# Overlays take what is written; /dev is made anew, since an overlay shows no devices of devtmpfs.
MOUNTS = r"""
set -eu
mount -t tmpfs tmpfs "$1"
for place in usr/lib usr/local/sbin var/lib srv; do
  over="$1/$(echo "$place" | tr / _)"
  mkdir -p "$over/up" "$over/work"
  mount -t overlay overlay -o "lowerdir=/$place,upperdir=$over/up,workdir=$over/work" "/$place"
done
mkdir "$1/dev"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs /dev
for node in null zero full random urandom tty; do
  touch "/dev/$node"
  mount --bind "$1/dev/$node" "/dev/$node"
done
mkdir /dev/shm /dev/pts
mount --bind "$1/dev/shm" /dev/shm
mount --bind "$1/dev/pts" /dev/pts
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd
mkdir -p /srv/emulated-enflame
cp "$2"/* /srv/emulated-enflame
/srv/emulated-enflame/enflame_host.sh on
echo ready
exec sleep 3600
"""


@dataclass
class Machine:
    """One machine and what is done on it."""

    holder: int
    directory: Path
    file: Path

    def __post_init__(self) -> None:
        """Know the vendor's file by its checksum."""
        self.manage = {
            "enflame_driver_mode": "manage",
            "enflame_driver_version": "1.7.2.14",
            "enflame_driver_file": str(self.file),
            "enflame_driver_sha256": hashlib.sha256(self.file.read_bytes()).hexdigest(),
        }

    def argv(self, *command: str) -> list[str]:
        """Return a command that runs where the machine's mounts are."""
        spaces = f"/proc/{self.holder}/ns"
        enter = [f"--mount={spaces}/mnt", f"--pid={spaces}/pid_for_children", f"--wd={ROOT}"]
        return ["nsenter", *enter, "--", *command]

    def sh(self, line: str) -> str:
        """Run one line as root on the machine, and return what it printed."""
        return subprocess.check_output(self.argv("sh", "-euc", line), text=True)

    def play(self, book: str = "driver.yml", check: bool = False, **said: Any) -> dict[str, Any]:
        """Play on the machine; return failed, changed, and each task's result by its name."""
        inventory = self.directory / "hosts.yml"
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        inventory.write_text(json.dumps({"gpu": {"hosts": {"n1": host}}}))
        program = Path(sys.executable).with_name("ansible-playbook")
        path = PLAYBOOKS / book if (PLAYBOOKS / book).exists() else ROOT / book
        argv = [str(program), "-i", str(inventory), str(path), "-e", json.dumps(said)]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "VLLM_ANSIBLE_RUNS_DIR": str(self.directory / "runs"),
        }
        done = subprocess.run(
            self.argv(*argv, *(["--check"] if check else [])),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        start = done.stdout.find("{\n")
        assert start >= 0, done.stdout + done.stderr
        told = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
        tasks = [task for play in told["plays"] for task in play["tasks"]]
        stats = told["stats"]["n1"]
        return {
            "failed": bool(stats["failures"]),
            "changed": stats["changed"],
            "failure": next((one for task in tasks if (one := _failure(task))), {}),
            "tasks": {one["task"]["name"]: one["hosts"]["n1"] for one in tasks if one["hosts"]},
        }

    def missed(self, **said: Any) -> list[str]:
        """Return what the gate misses: the identifiers, in order."""
        failure = self.play(**said)["failure"]
        return [one["what"].rpartition("(")[2].rstrip(")") for one in failure.get("missed", [])]


def _failure(task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = task["hosts"].get("n1", {})
    return found if found.get("failed") else {}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Give a machine with eight silent devices and no driver."""
    if os.geteuid() != 0:
        pytest.skip("mounts of its own need root")
    scratch = tmp_path / "mounts"
    scratch.mkdir()
    file = tmp_path / "TopsPlatform_1.4.6_deb_amd64.run"
    file.write_bytes((EMULATORS / "driver.run").read_bytes())
    # With processes of its own, whatever a test left running ends with its machine.
    own = ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = ["unshare", *own, "sh", "-c", MOUNTS, "sh"]
    with subprocess.Popen(
        [*argv, str(scratch), str(EMULATORS)], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            if holder.stdout.readline().strip() != "ready":
                pytest.skip("no mount namespaces on this machine")
            yield Machine(holder.pid, tmp_path, file)
        finally:
            holder.kill()
