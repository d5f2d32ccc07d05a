"""The administrator's script: valid sh, for its own hosts only, with all that is different."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.system.script import render

Judged = Callable[..., Any]
ADDRESSES = {"one": "10.0.0.1", "two": "10.0.0.2"}


@pytest.fixture
def poor(look: dict[str, Any]) -> dict[str, Any]:
    """Return a look at a host that lacks something of every concern."""
    look["devices"].append({"name": "rdmap0", "driver": "efa", "ports": []})
    look["limits"]["login"] = {"nofile": [1024, 4096], "memlock": [8 << 20, 8 << 20]}
    look["hosts_file"] |= {"addresses": ["127.0.1.1"], "hosts_file": "127.0.1.1 one\n"}
    look["time"] = {"synchronised": False, "daemons": [], "settable": True}
    look["network"] |= {"verbs": False, "modules": {"ib_uverbs": False, "rdma_ucm": False}}
    chain = {"family": "inet", "table": "filter", "chain": "input", "hook": "input"}
    look["firewall"] |= {
        "refusals": {"10.0.0.2": [{**chain, "ports": [[20000, 60999]], "sure": True}]},
        "unmended": [tuple(chain.values())],
    }
    look["container_runtime"] |= {"docker": False, "toolkit": False, "device_lists": []}
    return look


def test_every_concern_has_its_section(judged: Judged, poor: dict[str, Any]) -> None:
    text = render({"one": judged(poor)}, ADDRESSES, "/runs/1/administrator.sh")
    for title in ("limits", "hugepages", "hosts file", "time", "network", "firewall"):
        assert f"\n# {title}\n# - " in text
    assert "\n# container runtime\n# - the container runtime docker: expected there" in text
    assert "ssh HOST sudo sh < /runs/1/administrator.sh" in text
    assert "vm.nr_hugepages = 5281\n" in text
    assert "install chrony\n" in text
    assert "modprobe ib_uverbs\n" in text


def test_it_is_valid_sh(judged: Judged, poor: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "administrator.sh"
    script.write_text(render({"one": judged(poor)}, ADDRESSES, str(script)))
    done = subprocess.run(["sh", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_has_no_fault_that_shellcheck_knows(
    judged: Judged, poor: dict[str, Any], tmp_path: Path
) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not on this machine")
    script = tmp_path / "administrator.sh"
    script.write_text(render({"one": judged(poor)}, ADDRESSES, str(script)))
    # POSIX has no `ulimit -H`; dash, bash and busybox do.
    command = ["shellcheck", "--exclude=SC3045", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_hosts_that_lack_the_same_share_a_section(judged: Judged, poor: dict[str, Any]) -> None:
    found = {"time": judged(poor)["time"]}
    text = render({"one": found, "two": found}, ADDRESSES, "it.sh")
    assert "if is_host 10.0.0.1 || is_host 10.0.0.2; then" in text
    assert text.count("install chrony") == 1


def test_where_nothing_is_different_there_is_no_script(
    judged: Judged, look: dict[str, Any]
) -> None:
    assert render({"one": judged(look)}, ADDRESSES, "it.sh") == ""
    assert render({}, ADDRESSES, "it.sh") == ""


def test_a_host_it_is_not_for_is_left_alone(
    judged: Judged, poor: dict[str, Any], tmp_path: Path
) -> None:
    text = render({"one": judged(poor)}, {"one": "203.0.113.77"}, "it.sh")
    # What root would be asked for is not in question here.
    text = text.replace('[ "$(id -u)" -ne 0 ]', "false")
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "expected: one of one; found:" in done.stderr
    assert "none of their addresses" in done.stderr


def test_limits_are_those_that_can_be_set_where_it_runs(
    judged: Judged, poor: dict[str, Any], tmp_path: Path
) -> None:
    """Hard limits of the shell that runs it stand for those of a container."""
    lines = judged(poor)["limits"]["repair"]["script"]
    text = "\n".join(lines).replace("/etc/", f"{tmp_path}/").replace("/run/systemd/system", "/")
    # Asked for more it says no, as in a container; here root might be allowed to.
    refusing = 'ulimit() { [ $# = 1 ] && command ulimit "$1"; }'
    units = "systemctl() { case ${2-} in *NOFILE) echo 8192;; *MEMLOCK) echo 1024;; esac; }"
    lowered = f"ulimit -n 4096\nulimit -l 64\n{refusing}\n{units}\n{text}"
    subprocess.run(["sh", "-euc", lowered], check=True)
    logins = (tmp_path / "security/limits.d/90-vllm-ansible.conf").read_text()
    assert "root - nofile 4096\n" in logins
    assert "root - memlock 64\n" in logins
    found = (tmp_path / "systemd/system.conf.d/90-vllm-ansible.conf").read_text()
    # What units have is never lowered, and locked memory is in bytes here.
    assert "DefaultLimitNOFILE=8192\nDefaultLimitMEMLOCK=65536\n" in found
