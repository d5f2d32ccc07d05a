"""One host without root: its own supervisor, emulated ranks, and plays of roles upon it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.ports import free_ports
from vllm_ansible.node.process.process import Files, read_json
from vllm_ansible.node.process.supervisord import look
from vllm_ansible.plan.routers import WATCH_PORT

from .client import ask, listens
from .running import EMULATOR, HAPROXY, ROOT, wait_until

KEY = "sk-never-to-be-seen-0815"
PLAY = [
    {
        "name": "Put a router before the ranks",
        "hosts": "gpu",
        "gather_facts": False,
        "any_errors_fatal": True,
        "tags": ["serve"],
        "roles": ["router"],
    }
]


def neighbours() -> int:
    """Return a port that is free as the next one is."""
    while True:
        (first,) = free_ports(1)
        if not listens(first + 1):
            return first


class Site:
    """One host with an engine of two ranks, which are emulated."""

    def __init__(self, directory: Path, run_dir: Path) -> None:
        self.directory, self.run_dir = directory, run_dir
        self.cluster_dir = directory / "cluster"
        self.key_file = self.cluster_dir / "secrets/api_key"
        self.key_file.parent.mkdir(parents=True)
        self.key_file.write_text(f"{KEY}\n")
        tools = self.cluster_dir / "tools/bin"
        tools.mkdir(parents=True)
        (tools / "python").symlink_to(sys.executable)
        # A link alone loses the packages of a virtual environment.
        shutil.copy(Path(sys.prefix) / "pyvenv.cfg", tools.parent)
        (tools.parent / "lib").symlink_to(Path(sys.prefix) / "lib")
        # What an image has for a Python starts a container, which no service may.
        self.image_python = directory / "image-python"
        self.image_python.write_text("#!/bin/sh\nexit 70\n")
        self.image_python.chmod(0o755)
        self.port, block = free_ports(2)
        self.engine: dict[str, Any] = {
            "name": "chat",
            "index": 0,
            "served_name": "m",
            "layout": {"data": 2, "tensor": 1, "pipeline": 1},
            "hosts": ["here"],
            "ranks": [{"host": "here", "device": 0}, {"host": "here", "device": 1}],
            "ports": {"api": self.port, "gcs": block - WATCH_PORT, "worker_first": neighbours()},
            "probe": {"prompt": "Capital?", "expect": "Paris", "reasoning": False},
        }
        self.host: dict[str, Any] = {
            "name": "here",
            "address": "127.0.0.1",
            "accelerator": "nvidia",
            "cluster_dir": str(self.cluster_dir),
            "run_dir": str(run_dir),
            "service_user": pwd.getpwuid(os.getuid()).pw_name,
            "supervisor": "supervisord",
            "privileges": "none",
            "distribution": "debian",
            "pid1": "init",
            "cores": 2,
        }
        # Further ones are this machine, too, with directories and an address of their own.
        self.hosts = [self.host]
        self.watch_port = block
        self.processes: list[subprocess.Popen[bytes]] = []

    def start_ranks(self) -> None:
        """Start ranks at ports that follow each other, as those of an engine do."""
        first = self.engine["ports"]["worker_first"]
        for port in (first, first + 1):
            command = [sys.executable, str(EMULATOR), "--ports", str(port), "--key", KEY]
            self.processes.append(subprocess.Popen(command, cwd=ROOT))
            wait_until(lambda port=port: listens(port))

    def play(
        self, *options: str, play: Any = PLAY, **variables: Any
    ) -> tuple[int, str, list[dict[str, Any]]]:
        """Run the role, or another play; return its status, console and record."""
        hosts = {
            host["name"]: {
                "ansible_connection": "local",
                "ansible_python_interpreter": warm.python(),
                "cluster_name": "standin",
                "site_host": host,
            }
            for host in self.hosts
        }
        inventory = self.directory / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"gpu": {"hosts": hosts}}))
        playbook = self.directory / "play.yml"
        playbook.write_text(yaml.safe_dump(play))
        given = {
            "site_hosts": self.hosts,
            "site_plan": {"engines": [self.engine]},
            "site_api_key_file": str(self.key_file),
            "sources_environment": {},
            "allow_disruption": False,
            "environment_installed": {
                "python": str(self.image_python),
                "versions": {"vllm": "0.32.0"},
            },
            "router_haproxy": HAPROXY,
            # More than a busy machine takes for one token, and less than the gate waits.
            "router_answer_seconds": 4,
            **variables,
        }
        extra = self.directory / "extra.json"
        extra.write_text(json.dumps(given))
        words = ["-i", str(inventory), "-e", f"@{extra}", *options]
        variables = {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "VLLM_ANSIBLE_RUNS_DIR": str(self.directory / "runs"),
        }
        done = warm.play([*words, playbook], Path.cwd(), variables, timeout=300)
        lines = (self.directory / "runs/latest/events.jsonl").read_text().splitlines()
        return done.returncode, done.stdout + done.stderr, [json.loads(line) for line in lines]

    def pid(self, name: str) -> int:
        """Return the number of a recorded process that runs, else 0."""
        files = Files(str(self.cluster_dir), name)
        return look(files, read_json(files.record)).pid or 0

    def status(self, key: str = KEY) -> int:
        body = {"model": "m", "prompt": "p", "max_tokens": 2}
        return ask(self.port, "POST", "/v1/completions", body, key)[0]

    def end(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()
        self.play("-e", "router_mode=never")
        self.end_supervisor()

    def end_supervisor(self) -> None:
        """End what runs, whatever it is."""
        pid = self.run_dir / "supervisord.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
        shutil.rmtree(self.run_dir, ignore_errors=True)
