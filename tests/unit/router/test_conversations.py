"""What the door has named a conversation stays with one rank."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from .running import CLIENT_KEY, ROLE, Running


def rank_of(running: Running, conversation: str = "") -> str:
    """Return which rank answers a request of this conversation."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    headers = {"Authorization": f"Bearer {CLIENT_KEY}", "Content-Type": "application/json"}
    if conversation:
        headers["X-Conversation"] = conversation
    body = json.dumps({"model": "m", "prompt": "p", "max_tokens": 1})
    connection.request("POST", "/v1/completions", body, headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200
    return answer.headers["x-rank"]


def test_each_conversation_has_one_rank_and_all_ranks_have_some(
    started: Callable[..., Running],
) -> None:
    running = started(ranks=2, by_conversation=True)
    found = {number: {rank_of(running, f"{number:016x}") for _ in range(3)} for number in range(12)}
    assert all(len(ranks) == 1 for ranks in found.values())
    assert set.union(*found.values()) == set(running.names)
    # Who asks without a door names none.
    assert {rank_of(running) for _ in range(4)} == set(running.names)


@pytest.mark.parametrize(
    ("given", "ranks", "expected"),
    [
        ({}, 2, False),
        ({"door_balance": "conversations"}, 2, False),
        ({"door_balance": "conversations", "door_clients_file": "clients.yml"}, 2, True),
        ({"door_balance": "conversations", "door_clients_file": "clients.yml"}, 1, False),
        ({"door_balance": "least_connections", "door_clients_file": "clients.yml"}, 2, False),
    ],
)
def test_ranks_are_chosen_as_engines_are_where_a_door_names_conversations(
    given: dict[str, Any], ranks: int, expected: bool
) -> None:
    text = yaml.safe_load(Path(ROLE / "vars/main.yml").read_text())["router_by_conversation"]
    shown = jinja2.Environment(autoescape=False)  # noqa: S701 - no page
    said = shown.from_string(text).render(router_ranks=[{}] * ranks, **given)
    assert said.strip() == str(expected)
