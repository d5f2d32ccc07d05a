"""A host that was mended differs no more, as its own programs see it."""

import os
from pathlib import Path

import pytest
import testinfra
from testinfra.host import Host

INVENTORY = str(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory")
PORT = 20300
CONNECT = "timeout 5 bash -c '</dev/tcp/{}/{}'"


def test_the_hosts_name_leads_to_the_data_plane(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    for one, address in data_addresses.items():
        assert host.check_output(f"getent ahostsv4 {one}").split()[0] == address
    assert host.check_output("hostname") == name
    text = host.file("/etc/hosts").content_string
    assert "127.0.1.1" not in text
    assert "127.0.0.1 localhost" in text
    assert text.count("# BEGIN vllm-ansible molecule") == 1


def test_a_login_and_a_unit_may_open_as_many_files_as_can_be_had(host: Host) -> None:
    most = host.check_output("awk '/Max open files/ {print $5}' /proc/1/limits")
    assert int(most) > 2048
    # runuser asks pam_limits as sshd does; this connection may be older than the limits.
    assert host.check_output("runuser -u root -- sh -c 'ulimit -Sn'") == most
    unit = host.check_output("systemd-run --wait --pipe -q sh -c 'ulimit -Sn; ulimit -Hn'")
    assert unit.split() == [most, most]


def test_the_data_plane_has_the_mtu_that_was_asked_for_and_keeps_it(host: Host) -> None:
    assert host.file("/sys/class/net/eth1/mtu").content_string == "1380\n"
    hardware = host.file("/sys/class/net/eth1/address").content_string.strip()
    rule = host.file("/etc/udev/rules.d/90-vllm-ansible.rules").content_string
    assert f'ATTR{{address}}=="{hardware}", ATTR{{mtu}}="1380"' in rule
    assert host.file("/sys/class/net/eth0/mtu").content_string != "1380\n"


def test_peers_reach_each_other_and_nobody_else_was_let_in(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    if name != "lab2":
        assert not host.file("/etc/vllm-ansible").exists, "no firewall is on, none is touched"
        return
    peer = data_addresses["lab1"]
    rules = host.check_output("nft list chain inet filter input")
    assert f'ip saddr {peer} accept comment "vllm-ansible molecule"' in rules
    assert rules.count("vllm-ansible") == 1
    assert "policy drop" in rules


@pytest.mark.parametrize("verb", ["restart", "reload"])
def test_the_rules_come_back_when_the_firewall_reads_its_own_again(
    host: Host, name: str, verb: str
) -> None:
    if name != "lab2":
        pytest.skip("no firewall is on")
    host.check_output(f"systemctl {verb} nftables")
    rules = "nft list ruleset | grep --count 'vllm-ansible molecule'"
    host.check_output(f'timeout 10 sh -c "until {rules}; do sleep 0.1; done"')
    assert host.check_output(rules) == "1"


def test_a_port_of_the_ranks_is_open_between_them(
    host: Host, name: str, data_addresses: dict[str, str]
) -> None:
    if name != "lab1":
        pytest.skip("asked from lab1 once")
    other = testinfra.get_host("ansible://lab2", ansible_inventory=INVENTORY)
    address = data_addresses["lab2"]
    other.check_output(
        f"systemd-run -q --collect --unit=rank python3 -m http.server {PORT} --bind {address}"
    )
    try:
        other.check_output(
            f"timeout 20 sh -c 'until ss -Hlnt sport = :{PORT} | grep -q .; do sleep 0.1; done'"
        )
        assert host.run(CONNECT.format(address, PORT)).rc == 0
    finally:
        other.check_output("systemctl stop rank")
