"""Where prompts go, by the command line and by the record of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.batch import command
from vllm_ansible.batch.target import api, parameters, read_key, recorded
from vllm_ansible.problem import PlanError

CHAT = {
    "name": "chat",
    "served_name": "smollm2",
    "endpoint": "http://10.0.0.1:8000/v1",
    "api_key_file": "/state/key",
    "max_num_seqs": 112,
}
CODE = {**CHAT, "name": "code", "served_name": "coder", "max_num_seqs": None}


def run(runs: Path, name: str, inventory: Path, *engines: dict[str, Any]) -> None:
    directory = runs / name
    directory.mkdir(parents=True)
    events = [{"event": "run_start", "inventory": str(inventory), "directory": str(runs)}]
    if engines:
        values = {"engines": list(engines)}
        events.append({"event": "evidence", "gate": "serve", "values": values})  # type: ignore[dict-item]
    (directory / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))


def test_the_latest_run_that_served_this_inventory_says_where(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    run(tmp_path, "20261120T000000Z-a-1", mine, CODE)
    run(tmp_path, "20261121T000000Z-a-2", mine, CHAT)
    run(tmp_path, "20261122T000000Z-b-3", others, CODE)
    run(tmp_path, "20261122T010000Z-a-4", mine)
    found = recorded(tmp_path, mine, None)
    assert (found.url, found.model, found.key_file) == (CHAT["endpoint"], "smollm2", "/state/key")
    assert found.max_num_seqs == 112


def test_one_of_several_engines_has_to_be_named(tmp_path: Path) -> None:
    run(tmp_path, "20261122T000000Z-a-1", tmp_path / "mine", CHAT, CODE)
    with pytest.raises(PlanError, match="which engine"):
        recorded(tmp_path, tmp_path / "mine", None)
    with pytest.raises(PlanError, match="no engine cod"):
        recorded(tmp_path, tmp_path / "mine", "cod")
    assert recorded(tmp_path, tmp_path / "mine", "code").model == "coder"


def test_without_a_run_there_is_nothing_to_send_to(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no run has served this inventory"):
        recorded(tmp_path, tmp_path / "mine", None)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://a:8000", "http://a:8000/v1"),
        ("https://a.b/v1/", "https://a.b/v1"),
        ("http://[::1]:8000/", "http://[::1]:8000/v1"),
    ],
)
def test_an_address_is_taken_with_and_without_its_version(given: str, wanted: str) -> None:
    assert api(given) == wanted


@pytest.mark.parametrize(
    "given",
    [
        "a:8000",
        "ftp://a",
        "http://a:99999",
        "http://[a",
        "http://",
        "http://a/v1?x=1",
        "http://u:secret@a",
    ],
)
def test_what_is_no_address_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(PlanError) as caught:
        api(given)
    (problem,) = caught.value.problems
    assert "secret" not in f"{problem.message}{problem.found}"


def test_the_key_is_one_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("abc\n")
    assert (read_key(str(path)), read_key("")) == ("abc", "")
    for wrong in ("", "two\nlines"):
        path.write_text(wrong)
        with pytest.raises(PlanError, match="holds no key"):
            read_key(str(path))
    with pytest.raises(PlanError, match="No such file"):
        read_key(str(tmp_path / "absent"))


def test_parameters_are_json_or_else_a_text() -> None:
    given = ["max_tokens=5", 'stop=["a"]', "user=me", "seed="]
    assert parameters(given) == {"max_tokens": 5, "stop": ["a"], "user": "me", "seed": ""}
    with pytest.raises(PlanError, match="not name=value"):
        parameters(["temperature"])


def settings(*words: str, seats: int | None) -> Any:
    options = command.parser().parse_args(["p.json", *words])
    return command._settings(options, command.Known(max_num_seqs=seats))


def test_as_many_at_once_as_the_engine_has_seats(capsys: pytest.CaptureFixture[str]) -> None:
    assert settings(seats=112).concurrency == 112
    assert settings("-c", "7", seats=112).concurrency == 7
    assert capsys.readouterr().err == ""
    assert settings(seats=None).concurrency == 64
    assert "max_num_seqs of the engine is not known: 64 at a time" in capsys.readouterr().err


def test_nobody_to_send_to_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "p.json"
    prompts.write_text('[{"tag": "a", "prompt": "x"}]')
    assert command.main([str(prompts), "--url", "http://a"]) == 2
    assert "no server was named" in capsys.readouterr().err


def test_more_connections_than_the_system_allows_are_refused() -> None:
    with pytest.raises(PlanError, match="not allowed here") as caught:
        settings("-c", "100000000", seats=None)
    assert "--concurrency" in caught.value.problems[0].fix
