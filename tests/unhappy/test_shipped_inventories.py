"""Every shipped inventory passes its own check as it is, with the network and the cluster away."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.emulators.lambda_account import Account
from tests.emulators.lambda_cloud import Cloud
from tests.emulators.lambda_parts import Type
from tests.flows.clone import Clone

from .test_inventory import ROOT

INVENTORIES = sorted(path.name for path in (ROOT / "inventories").iterdir() if path.is_dir())
# What a person has to put in: a checksum, and what `make lab` writes.
GIVEN = {"enflame": ["-e", f"engine_image_sha256={'0' * 64}"]}
LAB = {"all": {"children": {"gpu": {"hosts": {f"lab{one}": None for one in (1, 2, 3)}}}}}
UNASKED = {
    "aws": "AWS was not asked",
    "lambda": "Lambda was not asked",
    "runpod": "RunPod was not asked",
    "slurm": "Slurm was not asked",
}


def shipped(directory: Path, name: str) -> Path:
    """Return a copy of an inventory with stand-ins for what its owner has to add."""
    place = directory / "inventories" / name
    shutil.copytree(ROOT / "inventories" / name, place, ignore=shutil.ignore_patterns("hosts.yml"))
    if (ROOT / "inventories" / name / "hosts.yml").exists() and name != "lab":
        shutil.copy(ROOT / "inventories" / name / "hosts.yml", place)
    if name == "lab":
        (place / "hosts.yml").write_text(yaml.safe_dump(LAB))
    for variables in place.glob("group_vars/*.yml"):
        for key, value in yaml.safe_load(variables.read_text()).items():
            if key.endswith("_file") and value.startswith("~/"):
                secret = directory / value.removeprefix("~/")
                secret.parent.mkdir(parents=True, exist_ok=True)
                public = "public_key" in key
                secret.write_text("ssh-ed25519 AAAA stand-in\n" if public else "a-stand-in\n")
                secret.chmod(0o600)
    return place


def run(directory: Path, inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.play(
        ["-i", inventory, *arguments],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if "ANSIBLE" not in name},
            "HOME": str(directory),
            "COLUMNS": "200",
            # No Slurm, and nobody who answers.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
        },
    )


@pytest.mark.parametrize("name", INVENTORIES)
def test_a_shipped_inventory_passes_its_own_check(tmp_path: Path, name: str) -> None:
    inventory = shipped(tmp_path, name)
    done = run(tmp_path, inventory, "playbooks/validate.yml", *GIVEN.get(name, ()))
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, said + done.stderr
    assert UNASKED.get(name, "") in said and ("not asked" in said) is (name in UNASKED)


@pytest.mark.parametrize("name", ["mine", "lambda", "slurm"])
def test_what_the_readme_says_of_an_inventory_passes_as_it_is_pasted(
    tmp_path: Path, name: str
) -> None:
    text = (ROOT / "README.md").read_text()
    block = re.search(rf"# inventories/{name}/group_vars/all.yml\n(.*?)^```$", text, re.M | re.S)
    hosts = re.search(rf"# inventories/{name}/hosts.yml\n(.*?)^#", text, re.M | re.S)
    assert block and bool(hosts) is (name == "mine")
    place = tmp_path / "inventories" / name if hosts else shipped(tmp_path, name)
    (place / "group_vars").mkdir(parents=True, exist_ok=True)
    (place / "group_vars/all.yml").write_text(block[1])
    if hosts:
        (place / "hosts.yml").write_text(hosts[1])
    done = run(tmp_path, place, "playbooks/validate.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_two_of_them_share_the_state_of_one_name() -> None:
    names = [
        yaml.safe_load((ROOT / "inventories" / name / "group_vars/all.yml").read_text())[
            "cluster_name"
        ]
        for name in INVENTORIES
    ]
    assert len(set(names)) == len(names), names


@pytest.mark.parametrize(
    ("name", "which"),
    [("aws", "rented"), ("lambda", "rented"), ("runpod", "rented"), ("slurm", "allocated")],
)
def test_the_default_model_is_not_served_on_machines_that_cost(
    tmp_path: Path, name: str, which: str
) -> None:
    inventory = shipped(tmp_path, name)
    variables = inventory / "group_vars/all.yml"
    told = yaml.safe_load(variables.read_text())
    del told["engines"]
    variables.write_text(yaml.safe_dump(told))
    done = run(tmp_path, inventory, "playbooks/validate.yml")
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    count = told.get("node_count") or told.get("slurm_nodes")
    assert f"engines is not set, and {count} machines would be {which}" in said
    assert "smollm2" in said and "add engines:" in said


def test_the_lab_says_how_it_is_made_before_there_is_one(tmp_path: Path) -> None:
    inventory = shipped(tmp_path, "lab")
    (inventory / "hosts.yml").unlink()
    done = run(tmp_path, inventory, "site.yml")
    assert done.returncode == 1
    assert "the lab has no hosts yet" in done.stderr and "run `sudo make lab`" in done.stderr
    assert "parse" not in done.stderr


def test_an_address_that_two_hosts_have_is_refused(tmp_path: Path) -> None:
    inventory = shipped(tmp_path, "enflame")
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    gpu = hosts["all"]["children"]["gpu"]["hosts"]
    gpu["gcu4"]["ansible_host"] = gpu["gcu1"]["ansible_host"]
    (inventory / "hosts.yml").write_text(yaml.safe_dump(hosts))
    done = run(tmp_path, inventory, "playbooks/validate.yml", *GIVEN["enflame"])
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert f"gcu1, gcu4 are one machine: each has the address {gpu['gcu1']['ansible_host']}" in said
    # The same address behind two ports is two machines.
    gpu["gcu4"]["ansible_port"] = 2222
    (inventory / "hosts.yml").write_text(json.dumps(hosts))
    done = run(tmp_path, inventory, "playbooks/validate.yml", *GIVEN["enflame"])
    assert done.returncode == 0, done.stdout


def test_a_dry_run_ends_well_before_there_are_nodes(tmp_path: Path) -> None:
    inventory = shipped(tmp_path, "slurm")
    commands = {"squeue": "", "scontrol": "", "sbatch": "echo Job 7 to start at noon >&2"}
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in commands.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    done = warm.play(
        ["-i", inventory, "site.yml", "--check"],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if "ANSIBLE" not in name},
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "VLLM_ANSIBLE_RUNS_DIR": str(tmp_path / "runs"),
        },
    )
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, said + done.stderr
    assert "would ask: Job 7 to start at noon" in said
    assert said.count("not checked: no machine yet for 4 of 4 hosts") == 8, said


def arguments(variables: dict[str, Any]) -> list[str]:
    return [part for name, value in variables.items() for part in ("-e", f"{name}={value}")]


def test_a_dry_run_ends_well_before_anything_is_rented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    account = Account([Type("gpu_1x_gh200", "GH200 (96 GB)", 149, left={"us-east-3": 17})])
    account.add_ssh_key("my-key", "ssh-ed25519 A")
    key = tmp_path / "key"
    key.write_text("a-stand-in")
    key.chmod(0o600)
    clone = Clone(tmp_path / "clone")
    inventory = clone.directory / "inventories/lambda"
    with Cloud(account, "a-stand-in", request_seconds=0, launch_seconds=0) as cloud:
        asked = {"lambda_endpoint": cloud.url, "lambda_api_key_file": key}
        asked["lambda_request_seconds"] = 0
        given = arguments(asked)
        ran = clone.start(inventory, "--tags", "validate", *given).result()
        assert ran.status == 0 and cloud.log == [], ran.output
        # Without a way to the hub nobody knows whether the model fits.
        ran = clone.start(inventory, "--check", *given).result()
        assert ran.status != 0 and "plan_allow_unchecked=true" in ran.output, ran.output
        ran = clone.start(inventory, "--check", *given, "-e", "plan_allow_unchecked=true").result()
        assert ran.status == 0, ran.output
        assert "17 of 17 would be rented: gpu_1x_gh200 in us-east-3, $25.33/h" in ran.output
        assert ran.output.count("not checked: no machine yet for 16 of 16 hosts") == 8, ran.output
        assert cloud.writes == []
