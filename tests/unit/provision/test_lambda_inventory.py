"""`ansible-inventory` with the plugin, against the emulated cloud."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.unit.conftest import one_path
from vllm_ansible.provision.watcher import end, lives

ROOT = Path(__file__).parents[3]


class Site:
    """An inventory directory of Lambda, in a copy of what the plugin needs."""

    def __init__(self, directory: Path, cloud: Cloud) -> None:
        self.directory, self.cloud = directory, cloud
        for name in ("ansible.cfg", "src"):
            (directory / name).symlink_to(ROOT / name)
        # Copied, since state/ is beside it.
        shutil.copytree(ROOT / "inventory_plugins", directory / "inventory_plugins")
        self.key = directory / "key"
        self.key.write_text("key-of-ann\n")
        self.key.chmod(0o600)
        self.variables: dict[str, Any] = {
            "cluster_name": "r1",
            "lambda_api_key_file": "{{ my_home }}/key",
            "my_home": str(directory),
            "lambda_ssh_key_name": "mine",
            "lambda_instance_types": ["gpu_1x_gh200"],
            "lambda_regions": ["us-east-3"],
            "node_count": 2,
            "spare_count": 1,
            "lambda_endpoint": cloud.url,
            "lambda_request_seconds": 0,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        place = self.directory / "inventory"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "lambda.yml").write_text("plugin: lambda_instances\n")
        if self.variables:
            (place / "group_vars" / "all.yml").write_text(yaml.safe_dump(self.variables))
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        here = one_path(self.directory)
        settings = {"HOME": str(self.directory), "ANSIBLE_CONFIG": str(here / "ansible.cfg")}
        return warm.play(
            ["-i", place, "--list", *arguments],
            self.directory,
            {**clean, **settings, "COLUMNS": "400"},
            "ansible-inventory",
            timeout=240,
        )

    def listed(self) -> dict[str, Any]:
        done = self.run()
        assert done.returncode == 0, done.stderr
        # What comes from outside is marked, so that it is never evaluated as a template.
        found: dict[str, Any] = json.loads(
            done.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one)
        )
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    kind = Type("gpu_1x_gh200", "GH200 (96 GB)", 149, left={"us-east-3": 9})
    account = Account([kind])
    account.add_ssh_key("mine", "ssh-ed25519 A")
    with Cloud(account, "key-of-ann", request_seconds=0, launch_seconds=0) as cloud:
        yield Site(tmp_path, cloud)


def launch(site: Site, slot: int, cluster: str = "r1") -> dict[str, Any]:
    tags = {"vllm-ansible:cluster": cluster, "vllm-ansible:slot": str(slot)}
    body = {
        "region_name": "us-east-3",
        "instance_type_name": "gpu_1x_gh200",
        "ssh_key_names": ["mine"],
        "tags": [{"key": key, "value": value} for key, value in tags.items()],
    }
    (identity,) = site.cloud.account.launch(body)["instance_ids"]
    return site.cloud.account.instance(identity)


def test_every_slot_is_a_host_before_anything_is_rented(site: Site) -> None:
    found = site.listed()
    assert found["gpu"]["hosts"] == ["r1-0", "r1-1"]
    assert (found["head"]["hosts"], found["worker"]["hosts"]) == (["r1-0"], ["r1-1"])
    assert found["spare"]["hosts"] == ["r1-2"]
    host = found["_meta"]["hostvars"]["r1-0"]
    assert host["ansible_host"] == "no-machine-yet.invalid"
    assert (host["accelerator_count"], host["accelerator_model"]) == (1, "GH200")
    assert site.cloud.writes == []


def test_a_machine_gives_its_slot_its_address(site: Site) -> None:
    machine = launch(site, 1)
    launch(site, 0, cluster="another")
    hosts = site.listed()["_meta"]["hostvars"]
    assert hosts["r1-1"]["ansible_host"] == machine["ip"]
    assert hosts["r1-1"]["provision_machine"]["id"] == machine["id"]
    # What the list says of it, and nothing of ours.
    cents = machine["instance_type"]["price_cents_per_hour"]
    assert hosts["r1-1"]["provision_machine"]["usd_per_hour"] == cents / 100
    assert hosts["r1-0"]["ansible_host"] == "no-machine-yet.invalid"


def test_no_secret_is_shown_or_kept(site: Site) -> None:
    machine = launch(site, 0)
    machine["jupyter_token"] = "token-of-jupyter"  # noqa: S105  nobody's
    done = site.run("-vvv")
    assert done.returncode == 0
    kept = [path for path in (site.directory / "state").rglob("lambda-*") if path.is_file()]
    texts = [done.stdout, done.stderr, *(path.read_text() for path in kept)]
    assert not [text for text in texts if "key-of-ann" in text or "token-of-jupyter" in text]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lambda_regions": None}, "lambda_regions is not set"),
        ({"lambda_regions": []}, "lambda_regions is empty"),
        ({"node_count": 0}, "node_count is 0"),
        ({"node_count": "two"}, "node_count is 'two'"),
        ({"cluster_name": "R 1"}, "cluster_name is 'R 1'"),
        ({"lambda_api_key_file": "/nowhere/key"}, "No such file"),
        ({"lambda_endpoint": "http://example.org"}, "https only"),
        ({"lambda_ssh_key_name": ""}, "lambda_ssh_key_name is not set"),
        ({"max_cost": -1}, "max_cost is -1"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_else(
    site: Site, change: dict[str, Any], words: str
) -> None:
    site.variables.update(change)
    done = site.run()
    assert done.returncode != 0
    assert words in done.stderr
    # Not a line of any other plugin, nor of Ansible's own.
    assert all(line.startswith((" inventory  ", "   ")) for line in done.stderr.splitlines())


@pytest.mark.parametrize(("text", "found"), [("", "nothing"), ("a b", "several words")])
def test_a_file_that_holds_no_key_is_told(site: Site, text: str, found: str) -> None:
    site.key.write_text(text)
    told = " ".join(site.run().stderr.split())
    assert f"expected one key, alone in its file found {found}" in told
    assert f"fix put the key, and nothing else, into {site.key}" in told


def test_variables_may_lie_in_a_directory(site: Site) -> None:
    site.listed()
    place = site.directory / "inventory/group_vars"
    (place / "all").mkdir()
    (place / "all.yml").rename(place / "all/lambda.yml")
    site.variables = {}
    done = site.run()
    assert json.loads(done.stdout)["gpu"]["hosts"] == ["r1-0", "r1-1"], done.stderr


def test_a_key_that_others_can_read_is_refused(site: Site) -> None:
    site.key.chmod(0o644)
    done = site.run()
    assert "mode 0644" in done.stderr and "chmod 600" in done.stderr


def test_a_key_that_lambda_does_not_know_is_told_in_its_words(site: Site) -> None:
    site.key.write_text("another\n")
    done = site.run()
    assert done.returncode != 0
    assert "API key was invalid, expired, or deleted" in done.stderr
    assert "another" not in done.stderr


def test_every_command_says_first_that_nobody_watches_the_limits(site: Site) -> None:
    launch(site, 0)
    site.variables["max_hours"] = 9
    meter = site.directory / "state/r1/lambda-meter.json"
    try:
        first = site.run()
        assert "no process has watched max_hours and max_cost of r1 so far: 1" in first.stderr
        assert json.loads(first.stdout)["gpu"]["hosts"] == ["r1-0", "r1-1"]
        # It watches now, and there is nothing to say.
        assert lives(meter)
        assert "limits" not in site.run().stderr
    finally:
        end(meter)
        until = time.monotonic() + 120
        while lives(meter):
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.parametrize("limits", [{}, {"max_hours": 9}])
def test_machines_of_another_name_are_said_with_price_and_owner(
    site: Site, limits: dict[str, int]
) -> None:
    """As after the end of a container that rented them, with its state/ and its watcher."""
    site.variables |= limits
    for slot in (0, 1):
        tags = launch(site, slot)["tags"]
        tags.append({"key": "vllm-ansible:owner", "value": "root@container-1"})
    told = " ".join(site.run().stderr.split())
    assert "2 machines at $2.98/h, rented by root@container-1; no process here watches them" in told
    assert "set lambda_owner" in told and "teardown.yml" in told
    # They may be somebody else's.
    assert not lives(site.directory / "state/r1/lambda-meter.json")
