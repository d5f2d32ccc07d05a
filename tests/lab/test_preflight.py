"""Each fault of a host is made for real, found, named on the right host, and gone when mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import Lab
from vllm_ansible.verify.preflight.request import request

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CLUSTER = "/srv/cluster"
ENGINES = [{"name": "chat"}]
Rows = dict[str, dict[str, str]]
# Runs commands on a host and looks at all of them: rows by check and host.
Examine = Callable[..., Rows]


def site_host(lab: Lab, name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": lab.address(name, "data"),
        "interface": "eth1",
        "accelerator": "cpu",
        "accelerator_count": 1,
        "supervisor": "systemd",
        "privileges": "root",
        "distribution": "debian",
        "cluster_dir": CLUSTER,
        "models_dir": f"{CLUSTER}/models",
        "run_dir": "/run/vllm-preflight",
        "service_user": "nobody",
        **more,
    }


@pytest.fixture(scope="module")
def examine(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examine]:
    """Look at both hosts over Ansible, as the role does, and judge."""
    directory: Path = tmp_path_factory.mktemp("preflight")
    for name in ("lab1", "lab2"):
        caches = f"{CLUSTER}/engines/chat/cache"
        lab.run(name, ["mkdir", "-p", f"{CLUSTER}/models", "/run/vllm-preflight", caches])
        lab.run(name, ["chown", "nobody", "/run/vllm-preflight", caches])

    def look(**more: Any) -> Rows:
        hosts = [site_host(lab, name, **more) for name in ("lab1", "lab2")]
        for one in hosts:
            asked = request(one, hosts, ENGINES, "preflight")
            folder = directory / "host_vars"
            folder.mkdir(exist_ok=True)
            (folder / f"{one['name']}.yml").write_text(
                yaml.safe_dump({"site_host": one, "asked": asked})
            )
        asked_of_host = {key: f"{{{{ asked.{key} }}}}" for key in request(hosts[0], hosts, [], "x")}
        tasks = [
            {"name": "look", "preflight_info": asked_of_host, "register": "__look"},
            {
                "name": "judge",
                "gate": {
                    "judge": "preflight",
                    "of": {"engines": ENGINES, "fails": False},
                    "of_each_host": {"looks": "__look", "hosts": "site_host"},
                },
                "run_once": True,
            },
        ]
        play = [{"hosts": "gpu", "gather_facts": False, "tasks": tasks}]
        (directory / "play.yml").write_text(yaml.safe_dump(play, sort_keys=False))
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("-i", str(lab.inventory), str(directory / "play.yml")),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        played = json.loads(done.stdout[done.stdout.index("{\n") :])
        judged = played["plays"][0]["tasks"][-1]["hosts"]["lab1"]
        return {
            f"{row['check']}@{row['host']}": row for row in judged["evidence"]["values"]["rows"]
        }

    yield look


def bad(rows: Rows) -> dict[str, str]:
    return {key: row["verdict"] for key, row in rows.items() if row["verdict"] in ("fail", "warn")}


def test_healthy_hosts_give_no_failure_and_no_warning(examine: Examine) -> None:
    rows = examine()
    assert bad(rows) == {}
    done = [row for row in rows.values() if row["verdict"] == "pass"]
    assert len(done) >= 25
    for host in ("lab1", "lab2"):
        assert rows[f"nofile@{host}"]["found"].endswith("in a service of systemd")
        assert rows[f"write@{host}"]["verdict"] == "pass"


SERVICES = "/etc/systemd/system/vllm-.service.d"
# The check, the host, how it is broken, how it is mended, and what must be said.
FAULTS = {
    "a hostname on loopback": (
        "hostname@lab1",
        "cp /etc/hosts /tmp/hosts && sed -E 's/^[0-9.]+ lab1$/127.0.1.1 lab1/' /tmp/hosts "
        "> /etc/hosts",
        "cat /tmp/hosts > /etc/hosts",
        "lab1: 127.0.1.1",
    ),
    "a tiny /dev/shm": (
        "shm@lab2",
        "mount -o remount,size=16m /dev/shm",
        "mount -o remount,size=50% /dev/shm",
        "free of 0.0 GiB",
    ),
    "a full file system": (
        "disk@lab1",
        f"mount -t tmpfs -o size=20m tmpfs {CLUSTER}/models && "
        f"dd if=/dev/zero of={CLUSTER}/models/x bs=1M count=19 status=none",
        f"umount {CLUSTER}/models",
        f"0.0 GiB of 0.0 GiB at {CLUSTER}/models",
    ),
    "no inodes left": (
        "inodes@lab2",
        f"mount -t tmpfs -o nr_inodes=60 tmpfs {CLUSTER}/models && "
        f"for n in $(seq 58); do touch {CLUSTER}/models/$n; done",
        f"umount {CLUSTER}/models",
        f"of 60 at {CLUSTER}/models",
    ),
    "a file system that may not be written": (
        "write@lab1",
        f"mount -t tmpfs -o ro tmpfs {CLUSTER}/models",
        f"umount {CLUSTER}/models",
        "Read-only file system",
    ),
    "a directory that is not the service's": (
        "write@lab2",
        "chown root: /run/vllm-preflight && chmod 755 /run/vllm-preflight",
        "chown nobody /run/vllm-preflight",
        "create as nobody in /run/vllm-preflight",
    ),
    "few open files for services": (
        "nofile@lab1",
        f"mkdir -p {SERVICES} && printf '[Service]\\nLimitNOFILE=1024\\n' > {SERVICES}/site.conf "
        "&& systemctl daemon-reload",
        f"rm -r {SERVICES} && systemctl daemon-reload",
        "1024, in a service of systemd",
    ),
    "the way to a peer over the wrong network": (
        "routes@lab1",
        "ip route add {lab2}/32 dev eth0",
        "ip route del {lab2}/32 dev eth0",
        "lab2: eth0 from",
    ),
    "no way to a peer": (
        "routes@lab2",
        "ip route add unreachable {lab1}/32",
        "ip route del unreachable {lab1}/32",
        "lab1: ",
    ),
    "another MTU": (
        "mtu@lab2",
        "ip link set dev eth1 mtu 1300",
        "ip link set dev eth1 mtu 1400",
        "1300 on lab2",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named_on_its_host(lab: Lab, examine: Examine, fault: str) -> None:
    key, breaks, mends, found = FAULTS[fault]
    host = key.partition("@")[2]
    addresses = {name: lab.address(name, "data") for name in ("lab1", "lab2")}

    def run(command: str) -> None:
        for name, address in addresses.items():
            command = command.replace(f"{{{name}}}", address)
        lab.run(host, ["sh", "-c", command])

    run(breaks)
    try:
        rows = examine()
    finally:
        run(mends)
    assert key in bad(rows), rows.get(key)
    assert rows[key]["verdict"] == "fail"
    assert found in rows[key]["found"] and rows[key]["fix"]
    # Nothing is said of the other host, and no other check is set off but one of the same fault.
    assert {one for one in bad(rows) if not one.endswith(host)} == set()


def test_little_lockable_memory_is_what_a_service_of_this_host_really_gets(
    examine: Examine, lab: Lab
) -> None:
    # These hosts may not raise it, and systemd does not say so: it matters with accelerators only.
    rows = examine(accelerator="nvidia")
    asked = ["systemd-run", "--quiet", "--wait", "--pipe", "--property=LimitMEMLOCK=infinity"]
    said = lab.run("lab1", [*asked, "sh", "-c", "ulimit -l"]).stdout.strip()
    if said == "unlimited":
        pytest.skip("this machine may raise the limit")
    assert rows["memlock@lab1"]["verdict"] == "fail"
    assert rows["memlock@lab1"]["found"].startswith(f"{int(said) // 1024} MiB")


def test_an_interface_that_is_down_is_found(lab: Lab, examine: Examine) -> None:
    lab.run("lab2", ["ip", "link", "set", "dev", "eth1", "down"])
    try:
        rows = examine()
    finally:
        lab.run("lab2", ["ip", "link", "set", "dev", "eth1", "up"])
    assert rows["link@lab2"]["verdict"] == "fail" and "down" in rows["link@lab2"]["found"]
    assert rows["routes@lab2"]["verdict"] == "fail"


def test_all_is_well_again(examine: Examine) -> None:
    assert bad(examine()) == {}
