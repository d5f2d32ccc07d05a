"""Each role on real hosts: molecule converges it twice, testinfra looks at what it left there.

The scenarios share one lab and one cluster, so each finds ready what the ones before it made, and
passes over what prepare.yml tags `ready`; alone (`molecule test -s vllm`), it makes all of that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ansible.lab import Lab, LabError

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[1]
MOLECULE = Path(sys.executable).with_name("molecule")
LAB = "molecule-test"
# In the order of site.yml: a scenario leaves running what the next one needs.
SCENARIOS = (
    *(
        "site",
        "provision",
        "nvidia_driver",
        "system",
        "nfs_cache",
        "host",
        "managed_process",
        # Beside the driver it runs what tells of the devices, as the cluster's own process.
        "enflame_driver",
        "router",
        "reach",
        "devices",
    ),
    *("wheels", "environment", "preflight", "collectives", "verification", "weights"),
    *("plan", "ray", "vllm", "benchmark", "sweep", "load_page", "teardown"),
)
# What a scenario's stand-ins are made with, on this machine.
NEEDS = {"nvidia_driver": ("gpg", "dpkg-deb", "dpkg-scanpackages")}
# All that come after the engine's environment need it.
ENGINE = SCENARIOS[SCENARIOS.index("environment") :]


@pytest.fixture(scope="module")
def environment(real_hosts: None) -> Iterator[dict[str, str]]:
    """Return the environment of molecule, and remove the lab that the scenarios have shared."""
    clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
    yield {
        **clean,
        "PATH": os.pathsep.join([str(MOLECULE.parent), clean["PATH"]]),
        "MOLECULE_LAB": LAB,
        "MOLECULE_COMMAND_BORDERS": "false",
        "ANSIBLE_SKIP_TAGS": "ready",
        "NO_COLOR": "1",
    }
    with contextlib.suppress(LabError):  # no scenario came so far as to make it
        Lab.open(LAB).down()
    shutil.rmtree(ROOT / "state" / "molecule", ignore_errors=True)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, marks=pytest.mark.engine) if one in ENGINE else one for one in SCENARIOS],
)
def test_scenario(scenario: str, environment: dict[str, str], tmp_path: Path) -> None:
    lacks = [tool for tool in NEEDS.get(scenario, ()) if shutil.which(tool) is None]
    if lacks:
        pytest.skip(f"{scenario} needs {', '.join(lacks)}")
    done = subprocess.run(
        # The next scenario goes on with this lab; the fixture removes it.
        [MOLECULE, "test", "--scenario-name", scenario, "--destroy=never"],
        cwd=ROOT,
        env={**environment, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "no tests found" not in done.stdout


def test_every_role_has_a_scenario_and_every_scenario_is_run() -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    scenarios = {path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")}
    assert roles | {"managed_process"} == scenarios == set(SCENARIOS)
    for scenario in scenarios:
        assert list((ROOT / "molecule" / scenario / "tests").glob("test_*.py")), scenario
