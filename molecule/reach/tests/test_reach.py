"""Hosts were measured against each other, and nothing of the measurement is left on them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

RUNS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "runs"
# One engine's ports; of the cluster: the coordinator's, the store's and the weights'.
PLANNED = {8000, *range(20000, 20012), 20012, 20013, 20014, *range(20020, 20100)}


def evidence() -> list[dict[str, Any]]:
    """Return what the gate said in each run of the play."""
    paths = sorted(RUNS.glob("*Z-*/events.jsonl"))
    events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [event["values"] for event in events if event.get("gate") == "reach"]


@pytest.mark.parametrize("which", [0, -1])
def test_every_run_measured_both_directions_anew(
    which: int, data_addresses: dict[str, str]
) -> None:
    values = evidence()[which]
    assert len(evidence()) > 1
    assert (values["hosts"], values["pairs"], values["blocked"]) == (2, 1, 0)
    assert values["connections"] == 2 * (len(PLANNED) + 3)
    trips = values["round_trip_us"]
    names = set(data_addresses)
    assert {name: set(peers) for name, peers in trips.items()} == {
        name: names - {name} for name in names
    }
    assert all(trip > 5 for peers in trips.values() for trip in peers.values())
    assert set(values["clock_offset_seconds"]) == names
    assert values["loss_worst_percent"] < 0.5
    # They leave by the network for data: another way would be a warning.
    assert values["noted"] == []


def test_nothing_listens_any_more(host: Host) -> None:
    sockets = {socket.rpartition(":")[2] for socket in host.socket.get_listening_sockets()}
    assert sockets.isdisjoint(map(str, PLANNED))
    kernel = {port for port in evidence()[-1]["ports"].split(", ") if int(port[:5]) > 30000}
    assert len(kernel) >= 3 and sockets.isdisjoint(kernel)


def test_no_process_and_no_status_is_left(host: Host, cluster_dir: str) -> None:
    assert host.process.filter(user="vllm-molecule") == []
    left = host.check_output(f"ls -A {cluster_dir}/tasks").split()
    assert [name for name in left if name.startswith("reach")] == []


def test_the_key_stays_out_of_the_record(host: Host, cluster_dir: str) -> None:
    key = host.file(f"{cluster_dir}/secrets/ray_token").content_string.strip()
    assert len(key) >= 32
    for path in RUNS.rglob("*"):
        assert not path.is_file() or key not in path.read_text(errors="replace"), path
