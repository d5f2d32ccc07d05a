"""The stage `provision` from a clone without state/, against the emulated cloud, and the lock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type

from .rental import KEY, KEYSCAN, ROOT, variables
from .world import EAST, GH200

COPIED = (
    *("action_plugins", "callback_plugins", "inventory_plugins"),
    *("playbooks", "roles", "site.yml"),
)
LINKED = ("src", "library", "filter_plugins", "connection_plugins", "ansible.cfg")


class Clone:
    """A checkout of its own, whose machines are all this one."""

    def __init__(self, directory: Path, cloud: Cloud) -> None:
        self.directory, self.cloud = directory, cloud
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, directory / name)
            else:
                shutil.copy(source, directory)
        for name in LINKED:
            (directory / name).symlink_to(ROOT / name)
        (directory / "bin").mkdir()
        (directory / "bin/ssh-keyscan").write_text(KEYSCAN)
        (directory / "bin/ssh-keyscan").chmod(0o755)
        self.lock = directory / "cluster/lock.json"
        place = directory / "inventory"
        (place / "group_vars").mkdir(parents=True)
        (place / "lambda.yml").write_text("plugin: lambda_instances\n")
        said = {
            **variables(directory, cloud),
            "ansible_connection": "local",
            "ansible_user": "root",
            "ansible_python_interpreter": warm.python(),
            "accelerator_count": 1,
            "accelerator_model": "",
            "engines": [{"name": "a", "model": "random:llama"}],
            "cluster_dir": str(self.lock.parent),
        }
        (place / "group_vars/all.yml").write_text(yaml.safe_dump(said))

    def rent(self) -> tuple[int, str]:
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        playbook = Path(sys.executable).with_name("ansible-playbook")
        done = subprocess.run(
            [str(playbook), "-i", "inventory", "site.yml", "--tags", "provision"],
            cwd=self.directory,
            env={
                **clean,
                "HOME": str(self.directory),
                "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode, " ".join(done.stdout.split())


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    account = Account([Type(GH200, "GH200 (96 GB)", 149, left={EAST: 4})])
    account.add_ssh_key("mine", "ssh-ed25519 A")
    with Cloud(account, KEY, request_seconds=0, launch_seconds=0) as cloud:
        yield Clone(tmp_path, cloud)


def test_a_clone_without_state_leaves_machines_alone_and_holds_the_lock_meanwhile(
    clone: Clone,
) -> None:
    # As another clone has left them, which measured them; here there is nothing to measure.
    for slot in (0, 1):
        tags = {"cluster": "r1", "slot": str(slot), "state": "of-another-clone"}
        clone.cloud.account.launch(
            {
                "region_name": EAST,
                "instance_type_name": GH200,
                "ssh_key_names": ["mine"],
                "name": f"r1-{slot}",
                "tags": [{"key": f"vllm-ansible:{key}", "value": tags[key]} for key in tags],
            }
        )
    before = sorted(clone.cloud.account.instances)
    status, told = clone.rent()
    assert status == 0, told
    assert "fit: rented before, not by this state/: not measured" in told
    assert sorted(clone.cloud.account.instances) == before
    # It has let go of the cluster.
    assert clone.lock.parent.is_dir() and not clone.lock.exists()
    other = {"run": "another", "holder": {"user": "ann", "host": "elsewhere"}, "since": 1.0}
    clone.lock.write_text(json.dumps(other))
    status, told = clone.rent()
    assert status == 2 and "another run holds this cluster: another by ann@elsewhere" in told
    assert sorted(clone.cloud.account.instances) == before
    assert not any(path.endswith("terminate") for path in clone.cloud.writes)
