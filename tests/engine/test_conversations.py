"""Conversations before two real engines: by least connections and by their first messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.metered_engine import KEY
from tests.unit.door.running import HAPROXY, Running, client

from .serving import Served, fetched, served

pytestmark = [pytest.mark.engine, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
# Of SmolLM2 in bf16: 30 layers, 3 heads of 64 for keys and for values.
TOKEN_BYTES = 30 * 2 * 3 * 64 * 2
# Eight conversations of 1,700 tokens at their end: five fit into one cache, all into both.
USERS, CACHE_TOKENS = 8, 9_000
SIZES = (f"--users={USERS}", "--turns=6", "--first=200", "--more=30", "--tokens=12")


@pytest.fixture(scope="module")
def engines(
    engine: Path, tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]
) -> Iterator[list[Served]]:
    directory = tmp_path_factory.mktemp("engines")
    model = fetched(directory, weights_request)
    cache = ("--kv-cache-memory-bytes", str(CACHE_TOKENS * TOKEN_BYTES), "--dtype", "bfloat16")
    with ExitStack() as stack:
        made = [
            stack.enter_context(served(engine, directory / f"{number}.log", model, *cache))
            for number in range(2)
        ]
        for one in made:
            one.ready()
        yield made


def talked(directory: Path, engines: list[Served], balance: str) -> dict[str, Any]:
    """Return what eight clients saw that talk at once through a door, each in six turns."""
    directory.mkdir()
    with Running(
        directory,
        clients={"alice": client(KEY)},
        engines=engines,  # type: ignore[arg-type] # a model and a port are all that it needs
        door_balance=balance,
    ) as running:
        key = directory / "client_key"
        key.write_text(KEY)
        done = subprocess.run(
            [
                *(sys.executable, str(ROOT / "benchmarks/device/turns.py")),
                *(f"https://127.0.0.1:{running.port}/v1", "chat", str(key)),
                ",".join(str(one.port) for one in engines),
                *SIZES,
            ],
            env={**os.environ, "SSL_CERT_FILE": str(directory / "tls.crt")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(balance, json.dumps(found))
    assert (found["answers"], found["failures"]) == (6 * USERS, 0)
    return found


@pytest.mark.skipif(HAPROXY is None, reason="no haproxy on this machine")
def test_more_of_a_prompt_is_cached_where_conversations_stay(
    engines: list[Served], tmp_path: Path
) -> None:
    """By turns, with new texts in each: the first ones also find machine and engines cold."""
    found: dict[str, list[float]] = {}
    for turn in range(3):
        for balance in ("least_connections", "conversations"):
            one = talked(tmp_path / f"{balance}-{turn}", engines, balance)
            found.setdefault(balance, []).append(one["cached_share"])
    assert sum(found["conversations"]) > sum(found["least_connections"]), found
