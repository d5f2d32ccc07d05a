"""Ranks of a measurement over ECCL: the program of a host, in a PyTorch that has the extension."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from vllm_ansible.node.collectives import links as verify_links
from vllm_ansible.node.collectives.coordinator import CollectiveError
from vllm_ansible.node.collectives.operations import FACTORS, Wishes

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
FILES = ROOT / "roles/collectives/files"
CHANNEL = ROOT / "src/vllm_ansible/node/collectives/channel.py"
EXTENSION = ROOT / "tests/emulators/torch_gcu"
Measure = Callable[..., dict[str, Any]]


@pytest.fixture
def measure(engine: Path, tmp_path: Path) -> Iterator[Measure]:
    """Measure between ranks of one host, as the role does."""
    for file in (*FILES.glob("*.py"), CHANNEL):
        (tmp_path / file.name).write_text(file.read_text())
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    started: list[subprocess.Popen[bytes]] = []

    def run(ranks: int, seconds: float = 600.0, **environment: str) -> dict[str, Any]:
        place, store = ("127.0.0.1", free_port()), free_port()
        options = {
            "coordinator": place[0],
            "port": place[1],
            "host": "n1",
            "address": place[0],
            "interface": "lo",
            "backend": "eccl",
            "device": "S60",
            "ranks": ranks,
            "key-file": key,
        }
        argv = [str(engine / "bin/python"), str(tmp_path / "rank.py")]
        argv += [f"--{name}={value}" for name, value in options.items()]
        known = {"PYTHONPATH": str(EXTENSION), "ECCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        started.append(subprocess.Popen(argv, env={**os.environ, **known, **environment}))
        wishes = Wishes(size=1 << 16, iterations=1)
        hosts = {"n1": ranks}
        return verify_links.check(hosts, place, store, str(key), wishes, seconds, lambda *_: None)

    yield run
    for process in started:
        process.terminate()
        process.wait(120)


def test_every_operation_is_measured_over_eccl(measure: Measure) -> None:
    found = measure(2)
    assert found["versions"]["device"] == "S60"
    operations = found["inside"]["n1"]
    assert set(FACTORS) <= set(operations)
    assert all(one["busbw"] > 0 and one["wrong"] == 0 for one in operations.values())
    assert found["transport"] == []


def test_a_device_that_is_not_there_ends_the_measurement_with_its_rank(measure: Measure) -> None:
    with pytest.raises(CollectiveError, match="rank 1 of n1 failed to begin") as error:
        measure(2, GCU_COUNT="1")
    assert error.value.details["where"] == "n1"
    assert "topsErrorInvalidDevice" in error.value.details["found"]
