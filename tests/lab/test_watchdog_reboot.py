"""A cluster's head is rebooted, for real: what ran there runs again, and what was stopped does not.

The head is a virtual machine with systemd; the engine is a stand-in for vLLM's processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.clone import wait_until
from vllm_ansible.lab.commands import missing_tools, run
from vllm_ansible.lab.vm import TOOLS, Machine

pytestmark = [pytest.mark.vm, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
# A machine emulated on a busy one takes its time.
SECONDS = 900.0
DIRECTORY, RUN, PROGRAM = "/opt/demo", "/run/vllm-demo", "/opt/demo/program"
PYTHON = "/usr/bin/python3"
SEEN = f"{RUN}/watchdog/state.json"
SERVER = {"host": "h1", "address": "127.0.0.1", "port": 8000, "served_name": "m", "local": True}
ENGINE = {"name": "r1", "servers": [SERVER], "why": "", "processes": ["r1-serve"], "nodes": {}}
WATCHED = {
    **{"host": "h1", "cluster_dir": DIRECTORY, "state_dir": f"{RUN}/watchdog", "py_spy": ""},
    **{"key_file": f"{DIRECTORY}/key", "answer_seconds": 60, "on_processors": True},
    "engines": [{"name": "r1", "ranks": [0], "peers": [], "server": SERVER}],
}
RESTARTS = {
    **{"mode": "auto", "cluster": "demo", "cluster_dir": DIRECTORY, "supervisor": "systemd"},
    **{"supervisor_dir": "", "python": PYTHON, "run_dir": RUN, "service_user": "vllm-demo"},
    **{"state_dir": f"{DIRECTORY}/restarts", "key_file": f"{DIRECTORY}/key", "ends_at": 0},
    **{"ray_token_file": "none", "most": 3, "within_seconds": 600, "start_seconds": 600},
    **{"silence_seconds": 600},
    "engines": [{**ENGINE, "dashboard_port": 0, "rungs": [], "hardware": ""}],
}
SPECS: list[dict[str, Any]] = [
    {
        **{"name": "r1-serve", "user": "vllm-demo"},
        "argv": [PYTHON, "/opt/ranks.py", "--port", "8000", "--ranks", "1"],
    },
    {
        **{"name": "watchdog", "user": "vllm-demo", "restart": True},
        "argv": [PYTHON, "-s", "-E", f"{PROGRAM}/main.py", f"{DIRECTORY}/watched.json"],
    },
    {
        **{"name": "watchdog-restarts", "user": None, "restart": True, "boot": True},
        "argv": [PYTHON, "-s", "-E", f"{PROGRAM}/restart.py", f"{DIRECTORY}/restarts.json"],
    },
]
PREPARE = f"""
useradd --system --no-create-home vllm-demo
install -d -m 755 {DIRECTORY}/processes {DIRECTORY}/logs
install -d -m 700 -o vllm-demo {RUN} {RUN}/watchdog
printf 'key\\n' > {DIRECTORY}/key
chmod -R a+rX /opt
"""
MANAGE = f"""
import json, subprocess, sys
sys.path.insert(0, "{PROGRAM}")
from node.process.manage import manage
from node.process.process import Files, spec
from node.process.systemd import Systemd

def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr

labels = {{"cluster": "demo", "engine": "", "stop_timeout_seconds": 30}}
supervisor = Systemd("demo", "/etc/systemd/system", run)
for one in json.loads(sys.argv[2]):
    files = Files("{DIRECTORY}", one["name"])
    wanted = spec(one) if sys.argv[1] == "started" else None
    print(manage(supervisor, files, wanted, labels, sys.argv[1])["action"])
"""


class Head:
    """The head, and what is asked of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        for directory, names in (
            (ROOT / "src/vllm_ansible", ["node"]),
            (ROOT / "roles/watchdog/files", ["main.py", "restart.py"]),
        ):
            self.bring(directory, names, PROGRAM)
        self.bring(ROOT / "tests/emulators", ["ranks.py"], "/opt")
        for name, content in (("watched", WATCHED), ("restarts", RESTARTS)):
            program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
            path = f"{DIRECTORY}/{name}.json"
            machine.run([PYTHON, "-c", program, path, json.dumps(content)])
        machine.run(["sh", "-euc", PREPARE])

    def bring(self, directory: Path, names: list[str], where: str) -> None:
        archive = subprocess.run(
            ["tar", "--create", "--exclude=__pycache__", "--directory", directory, *names],
            capture_output=True,
            check=True,
        ).stdout
        command = f"mkdir -p {where} && tar -x -C {where}"
        run([*self.machine.ssh(), "--", command], data=archive)

    def manage(self, state: str, *names: str) -> str:
        specs = [one for one in SPECS if one["name"] in names]
        return self.machine.run([PYTHON, "-c", MANAGE, state, json.dumps(specs)]).stdout

    def says(self, *argv: str) -> str:
        """Return what a command prints; nothing where it fails, as while the head boots."""
        done = self.machine.run(list(argv), check=False, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else ""

    def active(self, name: str) -> bool:
        return self.says("systemctl", "is-active", f"vllm-demo-{name}.service") == "active"

    def boot_id(self) -> str:
        return self.says("cat", "/proc/sys/kernel/random/boot_id")

    def reboot(self) -> float:
        before = self.boot_id()
        assert before
        self.machine.run(["systemctl", "reboot"], check=False, timeout=60)
        wait_until(lambda: self.boot_id() not in ("", before), SECONDS, "a reboot")
        return time.monotonic()

    def looked(self) -> float:
        """Return when the watchdog has looked last; 0 before it did."""
        return float(json.loads(self.says("cat", SEEN) or '{"at": 0}')["at"])

    def restarts(self) -> list[dict[str, Any]]:
        kept = json.loads(self.says("cat", f"{DIRECTORY}/restarts/state.json") or "{}")
        return list(kept.get("engines", {}).get("r1", {}).get("restarts", []))


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    with Machine.create("head-reboot", root=tmp_path / "vm", timeout=SECONDS) as machine:
        yield Head(machine)


def test_after_a_reboot_the_engine_answers_again_unless_it_was_stopped(head: Head) -> None:
    everything = [one["name"] for one in SPECS]
    assert head.manage("started", *everything).split() == ["start"] * 3
    wait_until(lambda: '"serving"' in head.says("cat", SEEN), SECONDS, "an engine that serves")
    assert head.says("systemctl", "is-enabled", "vllm-demo-watchdog-restarts.service") == "enabled"

    booted = head.reboot()
    wait_until(lambda: (head.restarts() or [{}])[-1].get("helped"), SECONDS, "an answer")
    print(f"answers {time.monotonic() - booted:.0f} s after SSH: {head.restarts()}")
    (one,) = head.restarts()
    assert (one["kind"], one["outcome"]) == ("rebooted", "it answers again")
    assert all(head.active(name) for name in everything)
    wait_until(lambda: '"serving"' in head.says("cat", SEEN), SECONDS, "a watchdog that sees it")
    assert head.says("stat", "-c", "%U %a", RUN) == "vllm-demo 700"

    assert head.manage("stopped", "r1-serve").split() == ["stop"]
    head.reboot()
    # What belongs to no engine is started first, by the same look.
    wait_until(lambda: head.looked(), SECONDS, "a watchdog that looks")
    first = head.looked()
    wait_until(lambda: head.looked() > first + 10, SECONDS, "several looks")
    assert not head.active("r1-serve") and len(head.restarts()) == 1

    assert head.manage("absent", *everything).split() == ["remove"] * 3
    units = head.says("find", "/etc/systemd/system", "-name", "vllm-demo*")
    assert units == ""
