"""What was rented is up, is the cluster's own, and is what answers under its names."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

CLOUD = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "cloud"
STATE = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "state" / "molecule-rent"


def listed(path: str) -> list[dict[str, Any]]:
    """Return what the cloud says."""
    key = {"Authorization": f"Bearer {(CLOUD / 'key').read_text()}"}
    request = urllib.request.Request((CLOUD / "url").read_text() + path, headers=key)  # noqa: S310
    with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310  on loopback
        found: list[dict[str, Any]] = json.load(answer)["data"]
    return found


@pytest.fixture(scope="module")
def instances() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in listed("/instances")}


def test_every_slot_has_one_machine_and_the_unhealthy_one_is_gone(
    instances: dict[str, dict[str, Any]],
) -> None:
    assert sorted(instances) == ["molecule-rent-0", "molecule-rent-1"]
    assert {one["status"] for one in instances.values()} == {"active"}
    assert {one["file_system_names"][0] for one in instances.values()} == {"shared"}


def test_a_host_of_the_inventory_is_the_machine_of_its_name(
    host: Host, name: str, instances: dict[str, dict[str, Any]]
) -> None:
    addresses = host.check_output("hostname --all-ip-addresses").split()
    assert instances[name]["ip"] in addresses
    assert instances[name]["private_ip"] in addresses


def test_its_key_is_pinned(host: Host, name: str, instances: dict[str, dict[str, Any]]) -> None:
    key = host.file("/etc/ssh/ssh_host_ed25519_key.pub").content_string.split()[:2]
    lines = (STATE / "known_hosts").read_text().splitlines()
    assert " ".join([instances[name]["ip"], *key]) in lines


def test_nothing_but_ssh_comes_in_from_outside(instances: dict[str, dict[str, Any]]) -> None:
    (ruleset,) = listed("/firewall-rulesets")
    assert [one["port_range"] for one in ruleset["rules"]] == [[22, 22]]
    assert sorted(ruleset["instance_ids"]) == sorted(one["id"] for one in instances.values())


def test_what_the_controller_keeps_holds_no_key_and_is_for_its_owner_alone() -> None:
    key = (CLOUD / "key").read_text()
    kept = [path for path in STATE.glob("lambda-*") if path.is_file()]
    assert kept
    assert [path for path in kept if key in path.read_text()] == []
    assert STATE.stat().st_mode & 0o077 == 0
