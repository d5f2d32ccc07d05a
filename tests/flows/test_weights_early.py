"""Weights begin to arrive in prepare, stand still while links are measured, and go on then."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.hub import CHUNK, Hub, Repository

from .clone import Clone, wait_until
from .hub_model import MAKE, MODEL
from .processes import end_all, of_cluster

SIZE = 4 * (6 << 20)
# As slow as it takes for the bytes to outlast a stage; afterwards nobody has to wait for them.
RATE = SIZE / 120
HERE = {"here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Serve a model of four shards, slowly."""
    subprocess.run([sys.executable, "-c", MAKE, tmp_path / "hub", ""], check=True)
    with Hub({MODEL: Repository(tmp_path / "hub/tree")}) as made:
        made.throttle(RATE)
        yield made


@pytest.fixture
def cluster_dir(tmp_path: Path) -> Iterator[Path]:
    """Name a directory of a cluster; no process of it stays behind."""
    yield tmp_path / "cluster"
    end_all(tmp_path / "cluster")


def digests(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file()
    }


def test_weights_arrive_beside_other_work_and_not_while_links_are_measured(
    hub: Hub, cluster_dir: Path, tmp_path: Path
) -> None:
    clone = Clone(tmp_path / "clone")
    inventory = clone.inventory(
        "early",
        HERE,
        cluster_name="early",
        cluster_dir=str(cluster_dir),
        accelerator="cpu",
        privileges="none",
        port_base=28000,
        engines=[{"name": "chat", "model": MODEL}],
        sources_environment={"HF_ENDPOINT": hub.url},
    )

    def fetching() -> Any:
        return json.loads((cluster_dir / "tasks/weights.json").read_text())

    prepared = clone.run(inventory, playbook="playbooks/prepare.yml")
    assert prepared.status == 0, prepared.output
    assert fetching()["state"] == "running", "prepare waited for the weights, or began none"
    wait_until(lambda: sum(hub.sent.values()) > 1 << 20, 60, "the first bytes")

    verified = clone.run(inventory, playbook="playbooks/verify.yml")
    assert verified.status == 0, verified.output
    assert (fetching()["state"], fetching()["message"]) == ("failed", "it was stopped")
    sent = sum(hub.sent.values())
    assert sent < SIZE, "nothing was left to stand still"
    assert [one for one in of_cluster(cluster_dir) if "hub" in one.arguments] == []
    assert sum(hub.sent.values()) == sent

    hub.throttle(0)
    fetched = clone.run(inventory, playbook="playbooks/weights.yml")
    assert fetched.status == 0, fetched.output
    assert digests(cluster_dir / "models/org--tiny") == digests(tmp_path / "hub/tree")
    # What was on its way when it was stopped is asked for again, of each file that was open.
    assert sum(hub.sent.values()) - SIZE < 4 * (CHUNK + (1 << 20))
