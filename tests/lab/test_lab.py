"""A lab starts, can be repeated, is reached as the inventory says, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import Lab, LabError
from vllm_ansible.lab import host as hosts
from vllm_ansible.lab.commands import podman
from vllm_ansible.lab.paths import lab_paths
from vllm_ansible.lab.record import load, save

pytestmark = pytest.mark.lab


def podman_names(token: str) -> set[str]:
    """Return what podman has of one lab; tests beside this one make and remove others."""
    everything = json.loads(podman("ps", "--all", "--format", "json"))
    names = {name for one in everything for name in one["Names"]}
    names |= set(podman("network", "ls", "--format", "{{.Name}}").split())
    return {name for name in names if token in name}


def token_of(root: Path) -> str:
    """Return what makes the names of a lab its own."""
    record = load(lab_paths("test", None, root).record)
    assert record is not None
    return record.token


def started(lab: Lab, host: str) -> str:
    """Return when a host's first process began, in ticks of the kernel."""
    return lab.run(host, ["cat", "/proc/1/stat"]).stdout.rpartition(")")[2].split()[19]


def test_every_host_runs_a_real_systemd_with_its_own_address_and_identity(lab: Lab) -> None:
    identities = set()
    for host in ("lab1", "lab2"):
        assert lab.run(host, ["cat", "/proc/1/comm"]).stdout == "systemd\n"
        assert lab.run(host, ["hostname"]).stdout == f"{host}\n"
        assert lab.address(host, "front") in lab.run(host, ["ip", "addr"]).stdout
        identities.add(lab.run(host, ["cat", "/etc/machine-id"]).stdout)
    assert len(identities) == 2


def test_the_default_route_is_not_on_the_network_for_data(lab: Lab) -> None:
    route = json.loads(lab.run("lab1", ["ip", "-j", "route", "show", "default"]).stdout)
    assert [one["dev"] for one in route] == ["eth0"]
    address = json.loads(lab.run("lab1", ["ip", "-j", "addr", "show", "eth1"]).stdout)
    assert address[0]["addr_info"][0]["local"] == lab.address("lab1", "data")


def test_a_strange_host_key_is_refused(lab: Lab) -> None:
    known = lab.paths.known_hosts
    pinned = known.read_text()
    first, second = pinned.splitlines()
    swapped = [f"{first.split(maxsplit=1)[0]} {second.split(maxsplit=1)[1]}", ""]
    known.write_text("\n".join(swapped))
    try:
        answer = lab.run("lab1", ["true"], check=False)
    finally:
        known.write_text(pinned)
    assert answer.returncode == 255
    assert "verification failed" in answer.stderr


def test_ansible_reaches_every_host_through_the_written_inventory(lab: Lab) -> None:
    ansible = Path(sys.executable).with_name("ansible")
    argv = [str(ansible), "gpu", "-i", str(lab.inventory), "-m", "ansible.builtin.ping"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", check=False)
    assert done.stdout.count("pong") == 2, done.stdout + done.stderr


def test_secrets_are_readable_by_their_owner_only(lab: Lab) -> None:
    for path in (lab.paths.state, lab.paths.key, lab.paths.record, lab.inventory / "hosts.yml"):
        assert path.stat().st_mode & 0o077 == 0, path


def sources_environment(lab: Lab) -> dict[str, str]:
    inventory: dict[str, Any] = yaml.safe_load((lab.inventory / "hosts.yml").read_text())
    environment: dict[str, str] = inventory["all"]["vars"]["sources_environment"]
    return environment


def test_hosts_install_packages_and_share_their_bytes(lab: Lab) -> None:
    environment = [f"{name}={value}" for name, value in sources_environment(lab).items()]
    inodes = set()
    for host in ("lab1", "lab2"):
        tools, target = "/opt/vllm-ansible/t/tools", "/opt/vllm-ansible/t/env"
        lab.run(host, ["python3", "-m", "venv", tools])
        lab.run(host, ["env", *environment, f"{tools}/bin/pip", "install", "--quiet", "uv"])
        uv = ["env", *environment, f"{tools}/bin/uv"]
        lab.run(host, [*uv, "venv", "--quiet", "--python", "/usr/bin/python3", target])
        lab.run(host, [*uv, "pip", "install", "--python", f"{target}/bin/python", "supervisor"])
        installed = lab.run(host, ["sh", "-c", f"stat -c %i {target}/lib/*/*/supervisor/http.py"])
        inodes.add(installed.stdout)
    assert len(inodes) == 1, "each host has a copy of its own instead of a link into the cache"


def test_up_again_changes_nothing(lab: Lab, make_lab: Callable[..., Lab]) -> None:
    before = lab.paths.record.read_text()
    since = started(lab, "lab1")
    root = lab.paths.state.parents[2]
    make_lab(2, "test", second_network=True, root=root)
    assert lab.paths.record.read_text() == before
    assert started(lab, "lab1") == since


def test_another_shape_under_the_same_name_is_refused(
    lab: Lab, make_lab: Callable[..., Lab]
) -> None:
    with pytest.raises(LabError, match="exists with 2 hosts on 2 networks, asked for 3 on 2"):
        make_lab(3, "test", second_network=True, root=lab.paths.state.parents[2])


def test_two_labs_live_side_by_side_and_down_removes_only_its_own(
    lab: Lab, make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    mine = podman_names(lab.record.token)
    # Of a lab that was killed and whose hosts are gone: the kernel gives their cables' names again.
    # Not these, which others use now.
    dead = "vllm_lab_deadbeef"
    cuts = f"table bridge {dead} {{ chain c {{ type filter hook prerouting priority -300; "
    rules = 'iifname "vethdeadbeef" drop; }; }'
    subprocess.run(["nft", "-f", "-"], input=cuts + rules, text=True, check=True)
    lab.link("lab1").limit(loss=0.1)
    with make_lab(1, "test", root=tmp_path) as other:
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
        assert dead not in tables and f"vllm_lab_{lab.record.token}" in tables
        lab.link("lab1").restore()
        assert other.run("lab1", ["true"]).returncode == 0
        assert len(podman_names(other.record.token)) == 2
        other.link("lab1").limit(rate="10mbit", delay="1ms", loss=0.1)
        devices = set(os.listdir("/sys/class/net"))
        token = other.record.token
        assert any(token[:6] in device for device in devices)
        trees = other.cache.host_directory(token, "")
    assert podman_names(token) == set()
    assert podman_names(lab.record.token) == mine
    assert not any(token[:6] in device for device in os.listdir("/sys/class/net"))
    assert not trees.exists()
    assert list((tmp_path / "state" / "lab").iterdir()) == []
    assert lab.run("lab1", ["true"]).returncode == 0


def test_an_interrupted_up_is_finished_a_stopped_host_comes_back_and_down_needs_no_ids(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hosts, "seed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_lab(1, "test", root=tmp_path)
    token = token_of(tmp_path)
    assert podman_names(token)
    lab = make_lab(1, "test", root=tmp_path)
    assert lab.record.token == token
    assert lab.run("lab1", ["true"]).returncode == 0
    # A stopped host comes back with its link as it was.
    lab.link("lab1").limit(delay="10ms")
    podman("stop", "--time", "0", lab.record.hosts[0].container)
    assert Lab.open("test", root=tmp_path).status() == {"lab1": "exited"}
    again = make_lab(1, "test", root=tmp_path)
    gateway = again.record.networks[0].subnet.replace("0/24", "1")
    report = again.run("lab1", ["ping", "-q", "-c", "3", "-i", "0.1", gateway]).stdout
    assert float(report.rpartition("= ")[2].split("/")[0]) >= 20
    # As where `up` was interrupted before it had noted them.
    record = load(lab.paths.record)
    assert record is not None
    record.hosts[0].id = record.networks[0].id = ""
    save(record, lab.paths.record)
    Lab.open("test", root=tmp_path).down()
    assert podman_names(token) == set()
