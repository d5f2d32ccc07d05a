"""The door's figures: by client, behind a key that opens nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vllm_ansible.node.engine.metrics import total

from .running import ALICE, Running, client, wait_until

OBSERVER = "observer-key-1234"
DIGEST = hashlib.sha256(OBSERVER.encode()).hexdigest()


def test_figures_of_clients_and_of_haproxy_are_behind_their_own_key(
    door: Callable[..., Running],
) -> None:
    running = door(
        clients={"alice": client(ALICE, requests_per_minute=2)}, door_observer_sha256=DIGEST
    )
    assert [running.chat(max_tokens=5)[0] for _ in range(4)] == [200, 200, 429, 429]
    assert running.chat("wrong")[0] == 401
    read, made = running.used("alice")[1:]
    logged = len(running.entries())

    status, text, _ = running.ask("GET", "/metrics/clients", key=OBSERVER)
    assert status == 200
    assert total(text, "vllm_door_requests_total", 'client="alice"') == 2
    assert total(text, "vllm_door_prompt_tokens_total", 'client="alice"') == read > 0
    assert total(text, "vllm_door_generation_tokens_total", 'client="alice"') == made > 0
    refused = "vllm_door_refusals_total"
    assert total(text, refused, 'client="alice"', 'status="429"') == 2
    assert total(text, refused, 'client="-"', 'code="invalid_api_key"') == 1

    status, text, _ = running.ask("GET", "/metrics", key=OBSERVER)
    assert (status, total(text, "haproxy_backend_active_servers", 'proxy="model0"')) == (200, 1)
    assert len(running.entries()) == logged

    for path in ("/metrics", "/metrics/clients"):
        assert [running.ask("GET", path, key=key)[0] for key in (ALICE, "", DIGEST)] == [
            404,
            401,
            401,
        ]
    assert running.chat(OBSERVER)[0] == 401


def test_without_an_observer_nobody_reads_figures(door: Callable[..., Running]) -> None:
    running = door(door_observer_sha256="")
    for path in ("/metrics", "/metrics/clients"):
        assert [running.ask("GET", path, key=key)[0] for key in (ALICE, OBSERVER, "")] == [
            404,
            401,
            401,
        ]


def test_a_full_disk_is_a_figure_and_an_alert_and_costs_no_count(
    door: Callable[..., Running], tmp_path: Path
) -> None:
    journals = tmp_path / "journals"
    journals.mkdir()
    # Of the next day as well, where the test runs over midnight.
    days = [datetime.now(UTC) + timedelta(days=one) for one in (0, 1)]
    full = [journals / f"{day:%Y-%m-%d}.journal" for day in days]
    for one in full:
        one.symlink_to("/dev/full")
    running = door(door_observer_sha256=DIGEST)

    def refused() -> float:
        text = running.ask("GET", "/metrics/clients", key=OBSERVER)[1]
        return total(text, "vllm_door_journal_refused_total")

    assert refused() == 0
    assert running.chat(max_tokens=5)[0] == 200
    wait_until(lambda: refused() > 0)
    wait_until(lambda: "the journal of the door cannot be written" in running.log.read_text())
    for one in full:
        one.unlink()
    wait_until(lambda: "the journal of the door is written again" in running.log.read_text())
    assert running.used("alice") == (1, 7, 5)
