"""The hosts file is mended by what is wrong in it, and by nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.system.wants import Wants

Judged = Callable[..., Any]
DEBIAN = """\
127.0.0.1\tlocalhost
127.0.1.1\tone.example.org one   # by the installer
# The printer
192.168.0.9 printer
::1 localhost ip6-localhost
"""
MENDED = """\
127.0.0.1\tlocalhost
# The printer
192.168.0.9 printer
::1 localhost ip6-localhost
# BEGIN vllm-ansible demo
10.0.0.1 one
10.0.0.2 two
# END vllm-ansible demo
"""


def mended(found: dict[str, Any]) -> str:
    (file,) = found["hosts_file"]["repair"]["files"]
    assert file["path"] == "/etc/hosts"
    return str(file["text"])


def test_debians_line_goes_and_ours_come(judged: Judged, look: dict[str, Any]) -> None:
    look["hosts_file"] |= {"hosts_file": DEBIAN, "addresses": ["127.0.1.1"]}
    assert mended(judged(look)) == MENDED


def test_what_is_mended_stays_as_it_is(judged: Judged, look: dict[str, Any]) -> None:
    look["hosts_file"] |= {"hosts_file": MENDED, "addresses": ["10.0.0.1"]}
    assert not judged(look)["hosts_file"]["differences"]


def test_a_peer_that_moved_moves_in_our_block(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    look["hosts_file"] |= {"hosts_file": MENDED, "addresses": ["10.0.0.1"]}
    found = judged(look, replace(want, peers={"two": "10.0.0.7"}))
    assert mended(found) == MENDED.replace("10.0.0.2", "10.0.0.7")


def test_a_name_that_shares_localhosts_line_leaves_localhost_there(
    judged: Judged, look: dict[str, Any]
) -> None:
    text = "127.0.0.1 localhost one\n::1 one localhost\n"
    look["hosts_file"] |= {"hosts_file": text, "addresses": ["127.0.0.1"]}
    assert mended(judged(look)).startswith("127.0.0.1 localhost\n::1 localhost\n# BEGIN")


def test_names_that_the_file_knows_already_are_left(judged: Judged, look: dict[str, Any]) -> None:
    text = "127.0.1.1 one\n192.168.0.2 two two.example.org\n"
    look["hosts_file"] |= {"hosts_file": text, "addresses": ["127.0.1.1"]}
    assert mended(judged(look)).count("two") == 2


def test_addresses_and_odd_names_of_an_inventory_are_no_host_names(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    look["hosts_file"] |= {"hosts_file": DEBIAN, "addresses": ["127.0.1.1"]}
    peers = {"10.0.0.2": "10.0.0.2", "gpu node": "10.0.0.3", "gpu_4": "10.0.0.4"}
    text = mended(judged(look, replace(want, peers=peers)))
    assert text.endswith("# BEGIN vllm-ansible demo\n10.0.0.1 one\n# END vllm-ansible demo\n")


def test_who_rewrites_the_file_at_boot_is_told(judged: Judged, look: dict[str, Any]) -> None:
    look["hosts_file"] |= {"addresses": ["127.0.1.1"], "rewritten_at_boot": True}
    assert "manage_etc_hosts" in judged(look)["hosts_file"]["notes"][0]


@pytest.mark.parametrize("before", [DEBIAN, MENDED, "127.0.0.1 localhost one\n"])
def test_the_script_for_an_administrator_writes_the_same(
    judged: Judged, look: dict[str, Any], tmp_path: Path, before: str
) -> None:
    look["hosts_file"] |= {"hosts_file": before, "addresses": ["127.0.1.1"]}
    found = judged(look)
    hosts = tmp_path / "hosts"
    hosts.write_text(before)
    lines = "\n".join(found["hosts_file"]["repair"]["script"]).replace("/etc/hosts", str(hosts))
    for _ in range(2):
        subprocess.run(["sh", "-euc", lines], check=True)
        assert hosts.read_text() == mended(found)
    assert list(tmp_path.iterdir()) == [hosts]
