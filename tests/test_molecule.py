"""Each role on real hosts: molecule converges it twice, testinfra looks at what it left there.

The scenarios share one lab and one cluster, so each finds ready what the ones before it made, and
passes over what prepare.yml tags `ready`; alone (`molecule test -s vllm`), it makes all of that.

A scenario costs a start of molecule, five of ansible-playbook and one of ansible-inventory. The
first two start each anew; the others have Ansible's programs forked (`tests.warm`), and the
inventory of the lab from the first.
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
import yaml

from tests import killed, warm
from vllm_ansible.lab import Lab, LabError

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[1]
MOLECULE = Path(sys.executable).with_name("molecule")
LAB = "molecule-test"
ALONE = "molecule-alone"
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
        "door",
        "observe",
        "reach",
        "devices",
    ),
    *("wheels", "environment", "preflight", "collectives", "verification", "weights"),
    *("plan", "ray", "vllm", "watchdog", "benchmark", "sweep", "load_page", "teardown"),
)
# What a scenario's stand-ins are made with, on this machine.
NEEDS = {"nvidia_driver": ("gpg", "dpkg-deb", "dpkg-scanpackages")}
# What shared/create.yml writes for the lab, in the inventory of a scenario.
MADE = ("lab.yml", "connections.yml")
# All that come after the engine's environment need it.
ENGINE = SCENARIOS[SCENARIOS.index("environment") :]


@pytest.fixture(scope="module")
def clean_environment(real_hosts: None) -> dict[str, str]:
    """Return the environment of molecule, without settings of Ansible for anything else."""
    clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
    return {
        **clean,
        "PATH": os.pathsep.join([str(MOLECULE.parent), clean["PATH"]]),
        "MOLECULE_COMMAND_BORDERS": "false",
        "NO_COLOR": "1",
    }


def remove(lab: str) -> None:
    """Remove a lab and what its scenarios keep in the checkout."""
    with contextlib.suppress(LabError):  # no scenario came so far as to make it
        Lab.open(lab).down()
    for name in ("molecule", "molecule-rent"):
        shutil.rmtree(ROOT / "state" / name, ignore_errors=True)


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return a directory with the ansible-playbook of all scenarios."""
    return warm.on_path()


@pytest.fixture(scope="module")
def environment(clean_environment: dict[str, str], programs: Path) -> Iterator[dict[str, str]]:
    """Return molecule's environment for all scenarios, and remove the lab that they have shared."""
    killed.remember(lab=[str(ROOT), LAB])
    path = os.pathsep.join([str(programs), clean_environment["PATH"]])
    yield {**clean_environment, "PATH": path, "MOLECULE_LAB": LAB}
    remove(LAB)


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the files of the inventory are kept that shared/create.yml has made."""
    return tmp_path_factory.mktemp("inventory")


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(one, marks=pytest.mark.engine) if one in ENGINE else one for one in SCENARIOS],
)
def test_scenario(
    scenario: str,
    environment: dict[str, str],
    programs: Path,
    inventory: Path,
    tmp_path: Path,
) -> None:
    lacks = [tool for tool in NEEDS.get(scenario, ()) if shutil.which(tool) is None]
    if lacks:
        pytest.skip(f"{scenario} needs {', '.join(lacks)}")
    shares = not (ROOT / "molecule" / scenario / "create.yml").exists()
    created = shares and any(inventory.iterdir())
    if created:
        shutil.copytree(inventory, tmp_path / "inventory")
        (tmp_path / "state.yml").write_text("{created: true, driver: default}")
    # The next scenario goes on with this lab; the fixture removes it.
    said = run_scenario(scenario, environment, tmp_path, "--destroy=never")
    assert ("instances already created" in said) is created, said
    if shares and not created:
        for name in MADE:
            shutil.copy2(tmp_path / "inventory" / name, inventory)
    if "ANSIBLE_SKIP_TAGS" in environment:
        warm.serve_named(programs, ROOT)
    # The first of a part that is run alone has made what all before it would have left.
    environment["ANSIBLE_SKIP_TAGS"] = "ready"


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_makes_all_that_it_needs_when_it_is_run_alone(
    scenario: str, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    """As CONTRIBUTING has it for a change of one role; each with hosts of its own."""
    killed.remember(lab=[str(ROOT), ALONE])
    try:
        run_scenario(scenario, {**clean_environment, "MOLECULE_LAB": ALONE}, tmp_path)
    finally:
        remove(ALONE)


def run_scenario(
    scenario: str, environment: dict[str, str], directory: Path, *arguments: str
) -> str:
    """Run a scenario, and return what it printed."""
    done = subprocess.run(
        [MOLECULE, "test", "--scenario-name", scenario, *arguments],
        cwd=ROOT,
        env={
            **environment,
            "MOLECULE_EPHEMERAL_DIRECTORY": str(directory),
            # It would read the files of all scenarios, twice as long as it takes to start.
            "MOLECULE_GLOB": f"molecule/{scenario}/molecule.yml",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "no tests found" not in done.stdout
    return done.stdout


def test_every_role_has_a_scenario_and_every_scenario_is_run() -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    scenarios = {path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml")}
    assert roles | {"managed_process"} == scenarios == set(SCENARIOS)
    for scenario in scenarios:
        assert list((ROOT / "molecule" / scenario / "tests").glob("test_*.py")), scenario


# A stage needs all of these done that come before it; the other stages change nothing it needs.
NEEDED = ("prepare", "install", "weights", "plan", "cluster", "serve", "benchmark")
LATER = {"verify": "weights"}  # it needs what the stage named needs


def imported(path: Path) -> list[str]:
    """Return the stages that a playbook of a scenario imports, in their order."""
    plays = yaml.safe_load(path.read_text()) or [] if path.exists() else []
    found = [str(play["import_playbook"]) for play in plays if "import_playbook" in play]
    return [Path(one).stem for one in found if one.startswith("../../playbooks/")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_prepares_all_that_its_stages_need(scenario: str) -> None:
    """So that it passes alone, too, and not just after the ones before it."""
    directory = ROOT / "molecule" / scenario
    prepared = imported(directory / "prepare.yml")
    for stage in imported(directory / "converge.yml"):
        name = LATER.get(stage, stage)
        needed = NEEDED[: NEEDED.index(name)] if name in NEEDED else ()
        assert [one for one in needed if one not in prepared] == [], f"{scenario}, for {stage}"
        prepared.append(stage)
    made = [NEEDED.index(one) for one in prepared if one in NEEDED]
    assert made == sorted(made)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_a_variable_reads_is_made_before_the_first_stage(scenario: str) -> None:
    """A stage resolves every variable, also those that only a later play needs."""
    directory = ROOT / "molecule" / scenario
    reads = "lookup('ansible.builtin.file'" in (directory / "molecule.yml").read_text()
    prepare = directory / "prepare.yml"
    if not reads or not prepare.exists():  # what `create` has made is there before both
        return
    first = yaml.safe_load(prepare.read_text())[0]
    assert "import_playbook" not in first, f"{first['name']}: its variables read a later file"


def test_the_order_of_stages_is_that_of_the_site() -> None:
    plays = yaml.safe_load((ROOT / "site.yml").read_text())
    stages = [Path(play["import_playbook"]).stem for play in plays]
    assert [stage for stage in stages if stage in NEEDED] == list(NEEDED)
    others = {"validate", "fill", "provision", "verify", "route", "observe", "release"}
    assert set(stages) - set(NEEDED) == others
