"""What hosts lack is taken from them for real, named, and mended by play or administrator."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.lab import Lab
from vllm_ansible.system.limit_files import LOGINS, UNITS
from vllm_ansible.system.wants import CONCERNS

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
HOSTS = ("lab1", "lab2")
PORT = 20300
LOOPBACK = "127.0.0.1 localhost\n127.0.1.1 {name}.example.org {name}\n::1 localhost\n"
REFUSE = """
flush ruleset
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iif lo accept
    iifname "eth0" accept
    tcp dport { 22, 8000 } accept
  }
}
"""


@dataclass
class Ran:
    """A play: what was judged on each host, and where the administrator's script lies."""

    changed: int
    missed: dict[str, list[dict[str, Any]]]
    evidence: dict[str, Any]
    script: str


@pytest.fixture(scope="module")
def play(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Play the role with modes; every concern is checked unless said otherwise."""
    directory: Path = tmp_path_factory.mktemp("system")

    def call(*flags: str, privileges: str = "root", **modes: str) -> Ran:
        facts = {
            "accelerator": "cpu",
            "accelerator_count": 1,
            "interface": "eth1",
            "privileges": privileges,
            "pid1": "systemd",
            "distribution": "debian",
        }
        hosts = [{**facts, "name": name, "address": lab.address(name, "data")} for name in HOSTS]
        asked = {f"system_{one}": modes.get(one, "check") for one in CONCERNS}
        asked["system_container_runtime"] = "skip"
        variables = json.dumps({"site_hosts": hosts, **asked})
        done = subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                *("-i", str(lab.inventory), "-e", variables, *flags),
                ROOT / "tests/lab/playbooks/system.yml",
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
        assert "{\n" in done.stdout, done.stdout + done.stderr
        played = json.loads(done.stdout[done.stdout.index("{\n") :])
        tasks = {one["task"]["name"]: one["hosts"] for one in played["plays"][0]["tasks"]}
        assert "system : Judge the operating system" in tasks, done.stdout
        judged = tasks["system : Judge the operating system"]
        script = tasks["system : Write what is left to an administrator"]["lab1"]["path"]
        return Ran(
            changed=sum(one["changed"] for one in played["stats"].values()),
            missed={name: one.get("missed", []) for name, one in judged.items()},
            evidence={name: one.get("evidence", {}) for name, one in judged.items()},
            script=Path(script).read_text() if script else "",
        )

    return call


def write(lab: Lab, host: str, path: str, text: str) -> None:
    lab.run(host, ["sh", "-c", f"printf %s {shlex.quote(text)} > {path}"])


def reaches(lab: Lab, source: str, target: str) -> bool:
    """Tell whether a connection from one host to a port of the ranks on another succeeds."""
    address = lab.address(target, "data")
    command = ["python3", "-m", "http.server", str(PORT), "--bind", address]
    lab.run(target, ["systemd-run", "--quiet", "--collect", "--unit=rank", *command])
    try:
        listening = f"until ss -Hlnt sport = :{PORT} | grep -q .; do sleep 0.1; done"
        lab.run(target, ["timeout", "30", "sh", "-c", listening])
        connect = f"</dev/tcp/{address}/{PORT}"
        done = lab.run(source, ["timeout", "15", "bash", "-c", connect], check=False)
        return done.returncode == 0
    finally:
        lab.run(target, ["systemctl", "stop", "rank"])


@pytest.fixture(scope="module")
def broken(lab: Lab) -> Lab:
    """Break each host in what a lab can break: names on both, a firewall on the second."""
    sources = [f"{name}={value}" for name, value in lab.sources().environment.items()]
    for name in HOSTS:
        write(lab, name, "/etc/hosts", LOOPBACK.format(name=name))
        few = "root hard nofile 4096\nroot soft nofile 2048\n"
        write(lab, name, "/etc/security/limits.d/10-few.conf", few)
    install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends nftables"
    lab.run("lab2", ["env", *sources, "sh", "-c", install])
    write(lab, "lab2", "/etc/nftables.conf", REFUSE)
    lab.run("lab2", ["systemctl", "enable", "--now", "nftables"])
    return lab


def test_each_fault_is_named_on_its_host_with_its_fix(
    broken: Lab, play: Callable[..., Ran]
) -> None:
    assert reaches(broken, "lab2", "lab1")
    assert not reaches(broken, "lab1", "lab2"), "the firewall really refuses"
    ran = play()
    assert ran.changed == 0
    for name in HOSTS:
        found = {one["what"]: one for one in ran.missed[name]}
        own = found.pop(f"the host's own name {name}")
        assert own["found"] == "127.0.1.1"
        assert f"{broken.address(name, 'data')} {name}" in own["fix"]
        if name == "lab2":
            firewall = found.pop("the firewall (nftables)")
            assert firewall["found"] == (
                "chain inet filter input refuses ports 20000-60999 from lab1"
            )
            assert "nft insert rule inet filter input" in firewall["fix"]
        # A container's open files are told, not demanded.
        assert found == {}
        assert all("sudo sh <" in one["fix"] for one in ran.missed[name])


def test_an_administrators_script_mends_the_hosts_and_may_be_run_again(
    broken: Lab, play: Callable[..., Ran]
) -> None:
    script = play().script
    shown = ["cat", "/etc/hosts"], ["nft", "list", "ruleset"]
    left = []
    for _ in range(2):
        for name in HOSTS:
            done = broken.run(name, ["sh", "-c", script])
            assert f"done on {name}" in done.stdout
        left.append([broken.run("lab2", list(argv)).stdout for argv in shown])
    assert left[0] == left[1]
    assert left[0][1].count("vllm-ansible lab") == 1

    after = play()
    assert after.missed == {name: [] for name in HOSTS}
    assert after.script == ""
    assert reaches(broken, "lab1", "lab2")
    for name in HOSTS:
        for other in HOSTS:
            said = broken.run(name, ["getent", "ahostsv4", other]).stdout
            assert said.split()[0] == broken.address(other, "data")


def test_limits_hold_for_a_new_login_and_a_new_unit(broken: Lab, play: Callable[..., Ran]) -> None:
    # The administrator's script, before, mended these too.
    assert broken.run("lab1", ["sh", "-c", "ulimit -Sn; ulimit -Hn"]).stdout.split() == ["4096"] * 2
    broken.run("lab1", ["rm", LOGINS, UNITS])
    broken.run("lab1", ["systemctl", "daemon-reload"])
    few = broken.run("lab1", ["sh", "-c", "ulimit -Sn; ulimit -Hn"]).stdout.split()
    assert few == ["2048", "4096"]
    looked = play("--check", limits="manage")
    assert looked.changed and broken.run("lab1", ["sh", "-c", "ulimit -Sn"]).stdout == "2048\n"

    first = play(limits="manage")
    assert first.changed
    assert first.missed == {name: [] for name in HOSTS}
    # Without CAP_SYS_RESOURCE a hard limit can only be taken up to, not raised.
    assert broken.run("lab1", ["sh", "-c", "ulimit -Sn; ulimit -Hn"]).stdout.split() == ["4096"] * 2
    unit = ["systemd-run", "--wait", "--pipe", "-q", "sh", "-c", "ulimit -Sn; ulimit -Hn"]
    most = broken.run("lab1", ["awk", "/Max open files/ {print $5}", "/proc/1/limits"]).stdout
    assert int(most) > 4096
    assert broken.run("lab1", unit).stdout.split() == [most.strip()] * 2
    assert play(limits="manage").changed == 0


def test_without_root_what_is_managed_is_left_to_the_administrator(
    broken: Lab, play: Callable[..., Ran]
) -> None:
    write(broken, "lab1", "/etc/hosts", LOOPBACK.format(name="lab1"))
    ran = play(privileges="none", hosts_file="manage")
    assert ran.changed == 0
    assert [one["what"] for one in ran.missed["lab1"]] == ["the host's own name lab1"]
    assert "# ---- lab1\n" in ran.script
    assert ran.missed["lab2"] == []
    values = ran.evidence["lab2"]["values"]
    assert values["firewall"]["why"] == "only root reads the rules"

    mended = play(hosts_file="manage")
    assert mended.changed and mended.missed == {name: [] for name in HOSTS}
