"""Two virtual machines with a wire between them, a server and a client, and plays of nfs_cache."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.lab.vm import Cable, Machine

ROOT = Path(__file__).parents[2]
PLAYBOOK = Path(__file__).parent / "playbooks/nfs_cache.yml"
ADDRESSES = {"server": "10.77.0.1", "client": "10.77.0.2"}
NETWORK = "[Match]\nName=eth1\n[Network]\nAddress={}/24\n"
PATH = "/srv/shared"
READ = f"""
import json, sys
sys.path.insert(0, "/root/src")
from vllm_ansible.node.nfs import probe
print(json.dumps(probe.timed_read(sys.argv[1], {PATH!r})))
"""
PROBE = f"""
import json, sys
sys.path.insert(0, "/root/src")
from vllm_ansible.node.nfs import probe
print(json.dumps(probe.probe({PATH!r}, "by-hand", int(sys.argv[1]), True)))
"""
AWAY = f"""
import sys
sys.path.insert(0, "/root/src")
from vllm_ansible.node.nfs import place
print(place.away({PATH!r}, float(sys.argv[1])))
"""


@dataclass
class Played:
    """What a play came to, on all hosts and task by task."""

    failed: bool
    changed: dict[str, int]
    tasks: dict[str, dict[str, Any]]

    def why(self) -> list[str]:
        """Return what failed, and where."""
        return [
            f"{task} on {host}: {result.get('msg')} {result.get('found', '')}"
            for task, hosts in self.tasks.items()
            for host, result in hosts.items()
            if result.get("failed")
        ]

    def result(self, task: str, host: str) -> dict[str, Any]:
        """Return what a task of the role gave on a host."""
        found: dict[str, Any] = self.tasks[f"nfs_cache : {task}"][host]
        return found


class Machines:
    """A server and its client."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        ends = {"server": root / "s.sock", "client": root / "c.sock"}

        def boot(name: str) -> Machine:
            other = next(one for one in ends if one != name)
            return Machine.create(name, cable=Cable(ends[name], ends[other]), root=root)

        self.root = root
        with ThreadPoolExecutor() as pool:
            self.machines = dict(zip(ends, pool.map(boot, ends), strict=True))
        for name, machine in self.machines.items():
            stack.enter_context(machine)
            line = NETWORK.format(ADDRESSES[name])
            self.sh(name, f"printf %s '{line}' > /etc/systemd/network/20-cable.network")
            self.sh(name, "networkctl reload")
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(ROOT / "src/vllm_ansible/__init__.py", "src/vllm_ansible/__init__.py")
            archive.add(ROOT / "src/vllm_ansible/node", "src/vllm_ansible/node")
        client = self.machines["client"].ssh()
        subprocess.run([*client, "tar -x -C /root"], input=packed.getvalue(), check=True)
        self.inventory = root / "hosts.yml"
        hosts = {name: machine.variables() for name, machine in self.machines.items()}
        self.inventory.write_text(yaml.safe_dump({"gpu": {"hosts": hosts}}))

    def sh(self, name: str, line: str, check: bool = True) -> str:
        """Run a line as root."""
        return self.machines[name].run(["sh", "-c", line], check=check).stdout

    def read(self, file: str) -> dict[str, Any]:
        """Read a file of the mount on the client, and return where it came from."""
        said = self.machines["client"].run(["python3", "-c", READ, f"{PATH}/{file}"]).stdout
        found: dict[str, Any] = json.loads(said)
        print(file, found, flush=True)
        return found

    def reader(self) -> None:
        """Let a process of the client use the mount, and wait until it does."""
        self.sh("client", f"systemd-run -q --unit=reader tail -f {PATH}/weights")
        # systemd-run comes back before the program has opened its file.
        opened = "ls -l /proc/$(systemctl show -P MainPID reader)/fd | grep -q weights"
        waits = f"until {opened}; do sleep 1; done"
        self.sh("client", f"timeout 60 sh -c {shlex.quote(waits)}")

    def probe(self, size: int) -> dict[str, Any]:
        """Probe the mount on the client as the role does."""
        said = self.machines["client"].run(["python3", "-c", PROBE, str(size)]).stdout
        found: dict[str, Any] = json.loads(said)
        return found

    def away(self, seconds: float) -> str:
        """Return why the server does not answer the client, as the role looks."""
        said = self.machines["client"].run(["python3", "-c", AWAY, str(seconds)]).stdout
        return said.rstrip("\n")

    def link(self, rate: str) -> None:
        """Let the server send at a rate, such as 8mbit; empty for as fast as it goes."""
        wanted = f"replace dev eth1 root tbf rate {rate} burst 32k latency 400ms"
        self.sh("server", f"tc qdisc {wanted if rate else 'del dev eth1 root'}")

    def reboot(self, name: str) -> None:
        """Boot a machine anew, by its own means, and wait until it answers."""
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = self.sh(name, boot)
        self.sh(name, "systemctl reboot", check=False)
        deadline = time.monotonic() + 300
        while self.sh(name, boot, check=False) in (before, ""):
            assert time.monotonic() < deadline, f"{name} does not come back"
            time.sleep(1)

    def mount(self, options: str) -> dict[str, Any]:
        """Run the module nfs_mount alone on the client, and return its answer."""
        said = f"path={PATH} source={ADDRESSES['server']}:{PATH} options={options}"
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible"),
                *("client", "-i", self.inventory, "-m", "nfs_mount", "-a", said),
            ],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "=> {" in done.stdout, done.stdout + done.stderr
        text = done.stdout[done.stdout.index("=> {") + 3 :]
        found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
        # Where a module fails, the word is before its answer alone.
        return {**found, "failed": "| FAILED! =>" in done.stdout}

    def play(self, *flags: str, **said: Any) -> Played:
        """Play the role on both."""
        facts = {"privileges": "root", "distribution": "debian", "cluster_dir": "/opt/lab"}
        hosts = [{**facts, "name": name, "address": ADDRESSES[name]} for name in ADDRESSES]
        variables = {
            "site_hosts": hosts,
            "sources_environment": {},
            "nfs_cache_path": PATH,
            "nfs_cache_server": "server",
            "nfs_cache_minimum_free_gib": 1,
            "nfs_cache_probe_mib": 16,
            **said,
        }
        began = time.monotonic()
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("-i", str(self.inventory), "-e", json.dumps(variables), *flags),
                PLAYBOOK,
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                "VLLM_ANSIBLE_RUNS_DIR": str(self.root / "runs"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        start = done.stdout.find("{\n")
        assert start >= 0, done.stdout + done.stderr
        told = json.JSONDecoder().raw_decode(done.stdout[start:])[0]
        tasks = {
            one["task"]["name"]: one["hosts"] for play in told["plays"] for one in play["tasks"]
        }
        stats = told["stats"]
        print(f"play {flags}: {time.monotonic() - began:.0f} s, {stats}", flush=True)
        return Played(
            any(one["failures"] or one["unreachable"] for one in stats.values()),
            {name: one["changed"] for name, one in stats.items()},
            tasks,
        )
