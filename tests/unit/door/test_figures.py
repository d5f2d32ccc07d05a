"""The door's figures: by client, behind a key that opens nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from vllm_ansible.node.engine.metrics import total

from .running import ALICE, HAPROXY, Running, client, wait_until

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
    # A line of the log may come after its answer.
    wait_until(lambda: len(running.entries()) == 5)

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
    assert len(running.entries()) == 5

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


@contextmanager
def without_a_place(journals: Path) -> Iterator[Callable[[], None]]:
    """Have journals in a directory that is not there; gives a way to make it."""
    journals.symlink_to(journals.parent / "missing")
    yield (journals.parent / "missing").mkdir


@contextmanager
def on_a_full_disk(journals: Path) -> Iterator[Callable[[], None]]:
    """Have journals in a file system without room; gives a way to make room."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    journals.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(journals)]
    subprocess.run(mount, check=True)
    try:
        filling = journals / "filling"
        with suppress(OSError), filling.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        yield filling.unlink
    finally:
        subprocess.run(["umount", "-l", str(journals)], check=True)


@pytest.mark.parametrize(
    "harm", [without_a_place, pytest.param(on_a_full_disk, marks=pytest.mark.soak)]
)
def test_lines_that_cannot_be_written_are_a_figure_and_cost_no_count(
    tmp_path: Path, harm: Callable[[Path], AbstractContextManager[Callable[[], None]]]
) -> None:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with (
        harm(tmp_path / "journals") as repair,
        Running(tmp_path, door_observer_sha256=DIGEST, journals_made=False) as running,
    ):

        def refused() -> float:
            text = running.ask("GET", "/metrics/clients", key=OBSERVER)[1]
            return total(text, "vllm_door_journal_refused_total")

        assert running.chat(max_tokens=5)[0] == 200
        wait_until(lambda: refused() > 0)
        wait_until(lambda: "the journal of the door cannot be written" in running.log.read_text())
        assert running.used("alice") == (0, 0, 0)
        repair()
        wait_until(lambda: "the journal of the door is written again" in running.log.read_text())
        assert running.used("alice") == (1, 7, 5)
        before = refused()
        assert running.chat(max_tokens=5)[0] == 200
        wait_until(lambda: running.used("alice") == (2, 14, 10))
        assert refused() == before
