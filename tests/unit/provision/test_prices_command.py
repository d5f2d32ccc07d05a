"""What `vllm-ansible prices` writes of a provider's catalogue, and that the planner reads it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.lambda_account import Account, Type
from tests.emulators.lambda_cloud import Cloud
from vllm_ansible.cli.main import main as command
from vllm_ansible.plan.estimate.layouts.offers import offers
from vllm_ansible.provision.prices_command import FAILED, OK, REFUSED, main


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text("secret\n")
    file.chmod(0o600)
    return str(file)


def test_lambdas_types_become_offers_that_the_planner_reads(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    types = [
        Type("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 2392),
        Type("gpu_1x_gh200", "GH200 (96 GB)", 149),
        Type("gpu_8x_a100", "A100 (40 GB SXM4)", 1032),
        Type("gpu_8x_a100_80gb_sxm4", "A100 (80 GB SXM4)", 1432),
        Type("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 50),
    ]
    with Cloud(Account(types), "secret", request_seconds=0, launch_seconds=0) as cloud:
        assert main(["lambda", key, "--nodes", "2", "--endpoint", cloud.url]) == OK
        assert cloud.writes == [] and cloud.misfits == []
    found = offers(yaml.safe_load(capsys.readouterr().out), "prices.yml", {})
    told = {one.name.split()[2]: (one.machines.line(), one.dollars_per_hour) for one in found}
    assert told == {
        "gpu_1x_gh200": ("2x1 GH200-96", 2.98),
        "gpu_8x_a100": ("2x8 A100-40", 20.64),
        "gpu_8x_a100_80gb_sxm4": ("2x8 A100-80", 28.64),
        "gpu_8x_h100_sxm5": ("2x8 H100-80", 47.84),
    }
    assert {one.as_of for one in found} == {date.today().isoformat()}


def test_runpods_accelerators_become_pods_of_several(
    runpod: Any, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["prices", "runpod", key, "--endpoint", runpod.cloud.url]) == OK
    found = offers(yaml.safe_load(capsys.readouterr().out), "prices.yml", {})
    told = {one.machines.line(): one.dollars_per_hour for one in found}
    assert told["1x8 H200"] == 28 and told["1x1 H100-80"] == 2.5
    assert len(told) == 8


def test_what_cannot_be_asked_is_one_sentence(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cloud(Account([]), "another", request_seconds=0, launch_seconds=0) as cloud:
        assert main(["lambda", key, "--endpoint", cloud.url]) == FAILED
    open_key = tmp_path / "open"
    open_key.write_text("secret")
    open_key.chmod(0o644)
    wrong = (
        (["slurm", key], "slurm rents no machines"),
        (["aws", key], "returns no prices"),
        (["lambda", str(open_key)], "chmod 600"),
        (["lambda", key, "--endpoint", "http://example.org"], "the key is not sent"),
        (["lambda", key, "--nodes", "0"], "--nodes is 0"),
    )
    assert "Lambda gave no prices" in capsys.readouterr().err
    for words, says in wrong:
        assert main(words) == REFUSED
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1
