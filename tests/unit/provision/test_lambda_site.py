"""`site.yml` over an inventory of Lambda, as a user runs it; no machine of it exists."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.unit.conftest import one_path

from .rental import KEY, variables
from .world import EAST, GH200

ROOT = Path(__file__).parents[3]
LARGE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


class Site:
    """A clone by links, with state/ and runs/ of its own, and an inventory of a few lines."""

    def __init__(self, directory: Path, cloud: Cloud) -> None:
        self.directory, self.cloud = directory, cloud
        for path in ROOT.iterdir():
            if path.name in ("action_plugins", "inventory_plugins"):
                # state/ is beside them.
                shutil.copytree(path, directory / path.name)
            elif path.name not in ("state", "runs", "inventories", ".git"):
                (directory / path.name).symlink_to(path)
        self.variables = {
            **variables(directory, cloud),
            "spare_count": 1,
            "engines": [{"name": "chat", "model": "package:smollm2-135m-instruct"}],
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        place = self.directory / "inventories/rented"
        (place / "group_vars").mkdir(parents=True, exist_ok=True)
        (place / "lambda.yml").write_text("plugin: lambda_instances\n")
        (place / "group_vars/all.yml").write_text(yaml.safe_dump(self.variables))
        clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        here = one_path(self.directory)
        settings = {"HOME": str(self.directory), "ANSIBLE_CONFIG": str(here / "ansible.cfg")}
        return warm.play(
            ["site.yml", "-i", "inventories/rented", *arguments],
            self.directory,
            {**clean, **settings, "COLUMNS": "120"},
            timeout=300,
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    account = Account([Type(GH200, "GH200 (96 GB)", 149, left={EAST: 4})])
    account.add_ssh_key("mine", "ssh-ed25519 A")
    with Cloud(account, KEY, request_seconds=0, launch_seconds=0) as cloud:
        yield Site(tmp_path, cloud)
        assert cloud.writes == []


def test_a_check_tells_the_price_writes_nothing_and_shows_no_key(site: Site) -> None:
    done = site.run("--check", "--tags", "provision", "-vvv", "-e", "node_count=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"4 of 4 would be rented: {GH200} in {EAST}, $5.96/h" in " ".join(done.stdout.split())
    assert KEY not in done.stdout + done.stderr
    written = [path for path in site.directory.rglob("*") if path.is_file() and path.name != "key"]
    own = [path for path in written if not path.resolve().is_relative_to(ROOT)]
    assert own and [path for path in own if KEY.encode() in path.read_bytes()] == []


def test_a_model_that_does_not_fit_is_refused_before_anything_is_rented(site: Site) -> None:
    model = site.directory / "large"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LARGE))
    site.variables["engines"] = [{"name": "large", "model": str(model)}]
    done = site.run("--tags", "provision")
    assert done.returncode != 0
    # Where the first line breaks depends on the length of the path, and it ends with the time.
    told = " ".join(done.stdout.split())
    assert "engine large with " in told
    assert "found TP1 PP2: the weights alone" in told
    assert " provision " not in done.stdout


def test_what_nobody_could_check_is_not_rented_unless_allowed(site: Site) -> None:
    site.variables["engines"] = [{"name": "large", "model": "/data/nowhere"}]
    done = site.run("--tags", "provision")
    told = " ".join(done.stdout.split())
    print(done.stdout)
    assert done.returncode != 0
    assert "fit of large not checked: its config.json cannot be read" in told
    assert "machines that are not rented yet: check failed: room for large" in told.lower()
    assert "fix give the controller a way to the hub" in told
    allowed = site.run("--tags", "provision", "--check", "-e", "plan_allow_unchecked=true")
    assert allowed.returncode == 0, allowed.stdout
    assert "would be rented" in " ".join(allowed.stdout.split())


def test_what_idles_of_rented_machines_is_told_with_its_price(site: Site) -> None:
    """Of 3 machines with a device each, and a spare, one serves: $2.98 of $5.96."""
    site.variables["engines"][0]["layout"] = {"tensor": 1}
    done = site.run("--check", "--tags", "provision", "-e", "node_count=3")
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 3 accelerators stay idle" in told
    assert f"4 of 4 would be rented: {GH200} in {EAST}, $5.96/h" in told
    assert "$2.98/h of $5.96/h idle: 2 of 3" in told


def test_a_stage_that_is_run_too_early_says_so_once(site: Site) -> None:
    done = site.run("--tags", "serve", "--limit", "gpu")
    assert done.returncode != 0
    assert done.stdout.count("There is no machine for it yet") == 1
    assert "r1-0, r1-1: There is no machine for it yet" in done.stdout
    assert "site.yml --tags provision" in done.stdout


def test_hosts_can_be_listed(site: Site) -> None:
    done = site.run("--list-hosts")
    assert done.returncode == 0, done.stderr
    assert {"r1-0", "r1-1", "r1-2"} <= set(done.stdout.split())
