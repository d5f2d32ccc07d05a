"""Weights begin to arrive in prepare, stand still while links are measured, and go on then."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.hub import CHUNK, Hub, Repository

from .clone import Clone, Ran, wait_until
from .hub_model import MAKE, MODEL
from .processes import end_all, of_cluster

SIZE = 4 * (6 << 20)
# As slow as it takes for the bytes to outlast a stage, also where a stage takes ten times as long;
# afterwards nobody has to wait for them.
RATE = SIZE / 1200
HERE = {"here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where everything of these tests lies."""
    return tmp_path_factory.mktemp("early")


@pytest.fixture(scope="module")
def hub(directory: Path) -> Iterator[Hub]:
    """Serve a model of four shards, slowly."""
    subprocess.run([sys.executable, "-c", MAKE, directory / "hub", ""], check=True)
    with Hub({MODEL: Repository(directory / "hub/tree")}) as made:
        made.throttle(RATE)
        yield made


@pytest.fixture(scope="module")
def cluster_dir(directory: Path) -> Iterator[Path]:
    """Name a directory for clusters; no process of them stays behind."""
    yield directory / "cluster"
    end_all(directory / "cluster")


@pytest.fixture(scope="module")
def run(hub: Hub, cluster_dir: Path, directory: Path) -> Callable[..., Ran]:
    """Run a playbook for an engine with a model of the hub, which lies on a volume."""
    clone = Clone(directory / "clone")

    def play(playbook: str, *arguments: str, cluster: str = "early") -> Ran:
        inventory = clone.inventory(
            cluster,
            HERE,
            cluster_name=cluster,
            cluster_dir=str(cluster_dir / cluster),
            models_dir=str(directory / "volume"),
            accelerator="cpu",
            privileges="none",
            port_base=28000,
            engines=[{"name": "chat", "model": MODEL}],
            sources_environment={"HF_ENDPOINT": hub.url},
        )
        ran = clone.run(inventory, *arguments, playbook=f"playbooks/{playbook}.yml")
        assert ran.status == 0, ran.output
        return ran

    return play


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file()
    }


def test_weights_arrive_beside_other_work_and_not_while_links_are_measured(
    hub: Hub, cluster_dir: Path, directory: Path, run: Callable[..., Ran]
) -> None:
    def fetching() -> Any:
        return json.loads((cluster_dir / "early/tasks/weights.json").read_text())

    run("prepare")
    assert fetching()["state"] == "running", "prepare waited for the weights, or began none"
    wait_until(lambda: sum(hub.sent.values()) > CHUNK, 600, "the first bytes")

    run("verify")
    assert (fetching()["state"], fetching()["message"]) == ("failed", "it was stopped")
    assert sum(hub.sent.values()) < SIZE, "nothing was left to stand still"
    assert [one for one in of_cluster(cluster_dir) if "hub" in one.arguments] == []

    hub.throttle(0)
    run("weights")
    assert digests(directory / "volume/org--tiny") == digests(directory / "hub/tree")
    # What was on its way when it was stopped is asked for again, of each file that was open.
    assert sum(hub.sent.values()) - SIZE < 4 * (CHUNK + (1 << 20))


def test_another_cluster_finds_on_the_volume_what_the_first_one_brought(
    hub: Hub, cluster_dir: Path, run: Callable[..., Ran]
) -> None:
    asked = len(hub.asked)
    run("prepare", cluster="later")
    found = run("weights", cluster="later")
    assert found.changed == []
    assert len(hub.asked) == asked
    assert not (cluster_dir / "later/tasks/weights.json").exists()


def test_a_model_goes_when_it_is_named_and_no_engine_needs_it_any_more(
    directory: Path, run: Callable[..., Ran]
) -> None:
    place = directory / "volume/org--tiny"
    without = ("-e", json.dumps({"engines": [], "weights_prune": ["org--tiny"]}))
    announced = run("prune", "--check", *without)
    assert "would remove org--tiny (24 MiB)" in " ".join(announced.output.split())
    assert place.exists()
    assert "removed org--tiny (24 MiB)" in " ".join(run("prune", *without).output.split())
    assert not place.exists()
