"""What clients used by day and model, as CSV, from the journals of the doors themselves."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from vllm_ansible.cli.main import main

from .running import ALICE, Running, client, wait_until

LINES = "1796200000.123 a alice 1 30 10\n1796200001.000 a bob 2 8 20 3 org/big%20one\n"


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_what_a_door_has_counted_is_a_table(
    door: Callable[..., Running], capsys: pytest.CaptureFixture[str]
) -> None:
    clients = {"alice": client(ALICE, requests_per_minute=3), "bob": client("bob-key")}
    running = door(clients=clients, models=("m", "größer; 2"))
    asked = [running.chat(max_tokens=5, stream=stream)[0] for stream in (True, False)]
    asked += [running.chat(model="größer; 2", max_tokens=1)[0], running.chat()[0]]
    assert asked == [200, 200, 200, 429]
    assert running.chat("bob-key", model="none")[0] == 404
    assert running.chat("nobody")[0] == 401

    def rows() -> list[list[str]]:
        directory = str(running.journals)
        prices = ["--usd-per-million-in", "2", "--usd-per-million-out", "10"]
        assert main(["usage", directory, *prices]) == 0
        found = table(capsys.readouterr().out)
        days = {(datetime.now(UTC) - timedelta(days=one)).strftime("%Y-%m-%d") for one in (0, 1)}
        assert {row.pop("day") for row in found} <= days
        return [list(row.values()) for row in found]

    # Refusals are written within half a second.
    wait_until(
        lambda: (
            running.journals.glob("*.journal")
            and "bob" in "".join(one.read_text() for one in running.journals.glob("*.journal"))
            and len(rows()) == 4
        )
    )
    assert rows() == [
        ["alice", "", "0", "0", "0", "1", "0.000000"],
        ["alice", "größer; 2", "1", "7", "1", "0", "0.000024"],
        ["alice", "m", "2", "14", "10", "0", "0.000128"],
        ["bob", "", "0", "0", "0", "1", "0.000000"],
    ]


def test_several_doors_are_added_up_and_no_copy_counts_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "2026-12-01.journal").write_text(LINES)
    (two / "2026-12-01.journal").write_text("1796200000.1 b alice 1 4 6 0 m\n")
    shutil.copy(one / "2026-12-01.journal", two / "2026-12-01.journal.door0")
    shutil.copy(two / "2026-12-01.journal", one / "2026-12-01.journal.door1")
    # Neither a line that was cut, nor other files there.
    with (one / "2026-12-02.journal").open("w") as file:
        file.write("1796300000.1 a bob 1 7 1?\n1796300000.1 a bob 1 7 2 0 mod?\n")
        file.write("1796300000.1 a bob 1 7 2 0 m\n1796300000.2 a bob 1")
    (one / "2026-12-02.month").write_text("alice 40\nend\n")
    assert main(["usage", str(one), str(two)]) == 0
    both = capsys.readouterr().out
    assert both.splitlines() == [
        "client,day,model,requests,tokens_in,tokens_out,refused,usd",
        "alice,2026-12-01,,1,30,10,0,",
        "alice,2026-12-01,m,1,4,6,0,",
        "bob,2026-12-01,org/big one,2,8,20,3,",
        "bob,2026-12-02,m,1,7,2,0,",
    ]
    assert main(["usage", str(one)]) == 0
    assert capsys.readouterr().out == both
    assert main(["usage", str(two), "--since", "2026-12-01", "--until", "2026-12-01"]) == 0
    assert len(table(capsys.readouterr().out)) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "No such file or directory"),
        (["."], "holds no journal of a door"),
        ([".", "."], "a directory is named twice"),
        ([".", "--usd-per-million-in", "1"], "give both prices, or neither"),
    ],
)
def test_what_cannot_be_read_is_refused(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["usage", *words]) == 2
    said = capsys.readouterr().err
    assert told in said and "Errno" not in said


def test_a_day_that_no_calendar_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counted nothing, without a word."""
    with pytest.raises(SystemExit):
        main(["usage", str(tmp_path), "--since", "2026-13-01"])
    assert "'2026-13-01' is no day" in capsys.readouterr().err
