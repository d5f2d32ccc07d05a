"""What the stages before the engines cost over more and more lab hosts that are as wanted."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from sides import REPOSITORY, SideError

from vllm_ansible.benchmark import profile
from vllm_ansible.benchmark.timed import Timed, timed
from vllm_ansible.lab.commands import podman
from vllm_ansible.lab.lab import Lab

CLUSTER = "curve"
CGROUPS = Path("/sys/fs/cgroup")
COLD_SECONDS, CONVERGED_SECONDS = 900, 300
# What comes after needs the engine: to convert weights, to judge its arguments, to start it.
STAGES = "prepare,install"
# What stands for 3 GB on each host: only whether it imports is asked of it.
STAND_INS = {
    "ray": {"__init__.py": '__version__ = "0"\n'},
    "torch": {"__init__.py": '__version__ = "0"\n'},
    "vllm": {
        "__init__.py": '__version__ = "0"\n',
        "platforms/__init__.py": "current_platform = None\n",
        "entrypoints/__init__.py": "",
        "entrypoints/cli/__init__.py": "",
        "entrypoints/cli/serve.py": "",
    },
}


def measure(
    directory: Path, counts: Sequence[int], runs: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Time converged runs over each number of hosts of one lab."""
    packages = write_stand_ins(directory / "packages")
    found = []
    with Lab.create(max(counts), CLUSTER, root=directory, progress=tell) as lab:
        for count in counts:
            inventory = write_inventory(lab, directory / f"{count}", count, packages)
            run(inventory, directory, COLD_SECONDS)
            one = converged(lab, inventory, directory, count, runs)
            found.append(one)
            tell(
                f"{count} hosts: {one['seconds']:.1f} s, CPU a host: controller "
                f"{one['controller_cpu']:.2f} s, the host itself {one['host_cpu']:.2f} s; "
                f"others kept {one['others']:.0%} of the machine busy; Ansible alone: "
                f"setup {one['setup']:.1f} s, ping {one['ping']:.1f} s"
            )
    return {"curve": found}


def converged(
    lab: Lab, inventory: Path, directory: Path, count: int, runs: int
) -> dict[str, float]:
    """Return medians over some runs that find everything as it should be."""
    costs, hosts = [], []
    for _ in range(runs):
        before = hosts_cpu(lab, count)
        costs.append(run(inventory, directory, CONVERGED_SECONDS))
        hosts.append(hosts_cpu(lab, count) - before)
        if profile.changed(profile.read(directory / "runs")):
            raise SideError("a converged run changed something")
    return {
        "hosts": count,
        **{
            module: statistics.median(alone(inventory, directory, module) for _ in range(runs))
            for module in ("setup", "ping")
        },
        "seconds": statistics.median(cost.seconds for cost in costs),
        "controller_cpu": statistics.median(cost.cpu_seconds for cost in costs) / count,
        "host_cpu": statistics.median(hosts) / count,
        "others": statistics.median(
            cost.others - share(cost, spent) for cost, spent in zip(costs, hosts, strict=True)
        ),
    }


def share(cost: Timed, host_seconds: float) -> float:
    """Return the part of the machine that the hosts took, which descend from nobody here."""
    return min(cost.others, host_seconds / (cost.seconds * (os.cpu_count() or 1)))


def run(inventory: Path, directory: Path, limit_seconds: float) -> Timed:
    """Run the stages, and refuse a run that fails."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "-i", str(inventory), str(REPOSITORY / "site.yml"), "--tags", STAGES]
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
    }
    cost = timed(argv, environment, directory / "curve.log", limit_seconds)
    if cost.status:
        said = profile.failure(profile.read(directory / "runs"))
        raise SideError(f"{' '.join(argv)} failed: {said}")
    return cost


def alone(inventory: Path, directory: Path, module: str) -> float:
    """Return the seconds that Ansible itself takes to run one module on all hosts."""
    program = str(Path(sys.executable).with_name("ansible"))
    argv = [program, "-i", str(inventory), "gpu", "-m", module]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    cost = timed(argv, environment, directory / "curve.log", CONVERGED_SECONDS)
    if cost.status:
        raise SideError(f"{' '.join(argv)} failed")
    return cost.seconds


def write_inventory(lab: Lab, directory: Path, count: int, packages: list[str]) -> Path:
    """Write an inventory of the first hosts of the lab."""
    data = yaml.safe_load((lab.inventory / "hosts.yml").read_text(encoding="utf-8"))
    group = data["all"]["children"]["gpu"]
    group["hosts"] = dict(list(group["hosts"].items())[:count])
    lock = directory / "lock.txt"
    directory.mkdir()
    lock.write_text("")
    # The lab's own paths follow its inventory, which this is not.
    text = yaml.safe_dump(data).replace("{{ inventory_dir }}", str(lab.inventory))
    data = yaml.safe_load(text)
    data["all"]["vars"] |= {
        "cluster_name": CLUSTER,
        "accelerator": "cpu",
        "privileges": "root",
        "environment_requirements": str(lock),
        "environment_packages": packages,
        "engines": [{"name": "none", "model": "random:deepseek-v3", "executor": "mp"}],
    }
    inventory = directory / "hosts.yml"
    inventory.touch(mode=0o600)  # an address in it may hold a password
    inventory.write_text(yaml.safe_dump(data), encoding="utf-8")
    return inventory


def write_stand_ins(directory: Path) -> list[str]:
    """Write the packages that stand for the engine, and return their directories."""
    for name, files in STAND_INS.items():
        for path, text in files.items():
            target = directory / name / "src" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        project = f'[project]\nname = "{name}"\nversion = "0"\n'
        (directory / name / "pyproject.toml").write_text(project, encoding="utf-8")
    return [str(directory / name) for name in STAND_INS]


def hosts_cpu(lab: Lab, count: int) -> float:
    """Return the processor seconds that the first hosts of the lab have used since they started."""
    total = 0.0
    for host in lab.record.hosts[:count]:
        path = podman("inspect", "--format", "{{.State.CgroupPath}}", host.container).strip("/\n")
        unified, split = CGROUPS / path / "cpu.stat", CGROUPS / "cpuacct" / path / "cpuacct.usage"
        if split.exists():
            total += int(split.read_text()) / 1e9
        else:
            total += int(unified.read_text().split()[1]) / 1e6
    return total
