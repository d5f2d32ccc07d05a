"""A key is learnt once for each machine; another one under the same address is not believed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from vllm_ansible.provision import files
from vllm_ansible.provision.host_keys import HostKeys, scan


class Network:
    """Hosts that show keys from some time on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.keys: dict[str, tuple[float, str]] = {}
        self.asked: list[str] = []

    def scan(self, address: str) -> list[str]:
        self.asked.append(address)
        since, key = self.keys.get(address, (1e9, ""))
        return [key] if self.now >= since else []

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def network() -> Network:
    return Network()


def keys(network: Network, tmp_path: Path) -> HostKeys:
    known_hosts = tmp_path / "r1" / "known_hosts"
    return HostKeys(known_hosts, network.scan, lambda: network.now, network.sleep)


def known(tmp_path: Path) -> list[str]:
    return (tmp_path / "r1" / "known_hosts").read_text().splitlines()


def test_a_host_that_boots_slowly_is_waited_for(network: Network, tmp_path: Path) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A"), "10.0.0.2": (42, "ssh-ed25519 B")}
    assert keys(network, tmp_path).learn({"a": "10.0.0.1", "b": "10.0.0.2"}, 300) == []
    assert known(tmp_path) == ["10.0.0.1 ssh-ed25519 A", "10.0.0.2 ssh-ed25519 B"]
    assert network.asked.count("10.0.0.1") == 1
    assert network.now == 45


def test_one_that_shows_no_key_in_time_is_named(network: Network, tmp_path: Path) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    assert keys(network, tmp_path).learn({"a": "10.0.0.1", "b": "10.0.0.2"}, 60) == ["b"]
    assert known(tmp_path) == ["10.0.0.1 ssh-ed25519 A"]


def test_a_known_machine_is_not_asked_again(network: Network, tmp_path: Path) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 of-another")}
    assert keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60) == []
    assert known(tmp_path) == ["10.0.0.1 ssh-ed25519 A"]


def test_an_address_that_another_machine_was_given_has_its_key(
    network: Network, tmp_path: Path
) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 B")}
    keys(network, tmp_path).learn({"b": "10.0.0.1"}, 60)
    assert known(tmp_path) == ["10.0.0.1 ssh-ed25519 B"]


def test_a_damaged_record_is_learnt_again(network: Network, tmp_path: Path) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    (tmp_path / "r1" / "host-keys.json").write_text("{")
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    record = json.loads((tmp_path / "r1" / "host-keys.json").read_text())
    assert record == {"a": {"address": "10.0.0.1", "keys": ["ssh-ed25519 A"]}}


def test_nobody_else_reads_or_writes_them(network: Network, tmp_path: Path) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    assert stat.S_IMODE((tmp_path / "r1").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "r1" / "known_hosts").stat().st_mode) == 0o600


def test_a_machine_that_moves_keeps_its_key_and_nothing_is_learnt(
    network: Network, tmp_path: Path
) -> None:
    network.keys = {"[10.0.0.1]:2201": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "[10.0.0.1]:2201"}, 60)
    asked = list(network.asked)
    keys(network, tmp_path).follow({"a": "[10.0.0.1]:2301", "b": "[10.0.0.2]:2302"})
    assert known(tmp_path) == ["[10.0.0.1]:2301 ssh-ed25519 A"]
    # Not listed, or without an address for a moment: what is known stays.
    keys(network, tmp_path).follow({"a": ""})
    keys(network, tmp_path).follow({})
    assert known(tmp_path) == ["[10.0.0.1]:2301 ssh-ed25519 A"]
    assert network.asked == asked


def test_a_key_is_asked_for_at_the_port_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    line = tmp_path / "line"
    script = f'#!/bin/sh\necho "$@" > {line}\necho "host ssh-ed25519 AAAA"\n'
    (tmp_path / "ssh-keyscan").write_text(script)
    (tmp_path / "ssh-keyscan").chmod(0o755)
    assert scan("[198.51.100.1]:2201") == ["ssh-ed25519 AAAA"]
    assert line.read_text().split()[-4:] == ["-p", "2201", "--", "198.51.100.1"]
    scan("198.51.100.1")
    assert "-p" not in line.read_text().split()


SSH = """\
#!/bin/sh
case " $* " in
*" -G "*) echo "proxyusefdpass no"; echo "$ROUTE"; exit;;
esac
echo "$*" > "$LINE"
for word; do case "$word" in UserKnownHostsFile=*) known=${word#*=};; esac; done
echo "198.51.100.1 ssh-ed25519 BBBB" > "$known"
echo "Permission denied (publickey)." >&2
exit 255
"""


@pytest.mark.parametrize("route", ["proxyjump bastion", "proxycommand ssh -W %h:%p bastion"])
def test_a_host_behind_a_bastion_is_asked_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """ssh-keyscan reads no configuration: a host that it cannot reach looked silent."""
    for name, text in (("ssh", SSH), ("ssh-keyscan", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    line = tmp_path / "line"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("LINE", str(line))
    monkeypatch.setenv("ROUTE", route)
    assert scan("[198.51.100.1]:2201") == ["ssh-ed25519 BBBB"]
    words = line.read_text().split()
    assert words[-5:] == ["-p", "2201", "--", "198.51.100.1", "true"]
    # Nothing is run there, and no password is asked for.
    assert {"PreferredAuthentications=none", "BatchMode=yes"} <= set(words)
    monkeypatch.setenv("ROUTE", "proxyjump none")
    assert scan("198.51.100.1") == []


def test_what_a_full_disk_kept_from_being_written_is_written_by_the_next_look(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.keys = {"10.0.0.1": (0, "ssh-ed25519 A")}
    keys(network, tmp_path).learn({"a": "10.0.0.1"}, 60)
    left = [1]

    def full(path: Path, text: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        written(path, text)

    written = files.write
    for room in (0, 1):
        left[0] = room
        with monkeypatch.context() as patched:
            patched.setattr(files, "write", full)
            with pytest.raises(OSError, match="No space"):
                keys(network, tmp_path).follow({"a": f"10.0.1.{room}"})
        keys(network, tmp_path).follow({"a": f"10.0.1.{room}"})
        assert known(tmp_path) == [f"10.0.1.{room} ssh-ed25519 A"]
