"""Clients of the door are promised nothing that engines and settings do not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.inventory.clients import unkept
from vllm_ansible.plan.engines import parse_engines

PRIORITY = {
    "layout": {"data": 2, "tensor": 1, "pipeline": 1},
    "vllm_args": {"scheduling-policy": "priority"},
}

ADAPTER = {"enable_lora": True, "lora_modules": ["law=/adapters/law"]}


def problems(
    tmp_path: Path, client: dict[str, Any], front: str = "router", **variables: Any
) -> list[str]:
    file = tmp_path / "clients.yml"
    file.write_text(yaml.safe_dump({"clients": {"alice": {"key_sha256": "ab" * 32, **client}}}))
    engines = parse_engines(
        [
            {"name": "a", "model": "org/a", "served_name": "m", "port": 8001, "front": front}
            | PRIORITY,
            {"name": "b", "model": "org/b", "served_name": "n", "port": 8002, "vllm_args": ADAPTER},
        ]
    )
    given = {"door_clients_file": str(file), "door_keep_days": 35, **variables}
    return [one.message for one in unkept(given, engines, lambda name, _: name)]


@pytest.mark.parametrize("client", [{}, {"priority": 0}, {"priority": -1, "models": ["m"]}])
def test_a_priority_that_engines_heed_is_accepted(tmp_path: Path, client: dict[str, Any]) -> None:
    assert problems(tmp_path, client) == []


@pytest.mark.parametrize("models", [[], ["n"], ["m", "n"], ["law"]])
def test_a_priority_that_an_engine_does_not_heed_is_refused(
    tmp_path: Path, models: list[str]
) -> None:
    (found,) = problems(tmp_path, {"priority": -1, "models": models})
    assert found == ("client alice has priority -1, and b serves requests in the order of arrival")


def test_a_front_that_refuses_priorities_is_named(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, {"priority": -1, "models": ["m"]}, front="dynamo")
    assert "and a serves requests in the order of arrival" in found


def test_tokens_of_a_month_need_journals_of_a_month(tmp_path: Path) -> None:
    client = {"tokens_per_month": 100}
    assert problems(tmp_path, client, door_keep_days=31) == []
    (found,) = problems(tmp_path, client, door_keep_days=30)
    assert found == "door_keep_days is 30, and alice may use so many tokens a month"
    assert problems(tmp_path, {}, door_keep_days=1) == []


def test_a_file_that_cannot_be_used_is_refused_elsewhere(tmp_path: Path) -> None:
    given = {"door_clients_file": str(tmp_path / "none"), "door_keep_days": 1}
    assert unkept(given, (), lambda name, _: name) == []


def test_an_adapter_with_the_name_of_another_model_is_refused_where_there_is_a_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ADAPTER, "lora_modules", ["m=/adapters/m"])
    (found,) = problems(tmp_path, {})
    assert found == "adapter m of engine b has the name of the model of engine a"
    assert problems(tmp_path, {}, door_clients_file="") == []
