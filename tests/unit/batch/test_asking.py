"""One question by the command, to a server of ours."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.emulators.chat_server import CUT, KEY, MODEL, ChatServer
from vllm_ansible.batch.asking import main


def where(directory: Path, url: str, key: str = KEY) -> list[str]:
    """Return the options that say which server is asked."""
    file = directory / "key"
    file.write_text(f"{key}\n")
    return ["--url", url, "--model", MODEL, "--key-file", str(file)]


def test_the_answer_alone_goes_to_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer() as server:
        status = main(
            ["think about it", *where(tmp_path, server.url), "--parameter", "max_tokens=9"]
        )
    said = capsys.readouterr()
    assert (status, said.out) == (0, "wörd0 wörd1 wörd2 \n")
    assert said.err.startswith("hm, ")
    assert "3 tokens of prompt, 3 of answer in " in said.err
    assert "first one after " in said.err
    (body,) = server.bodies
    assert (body["max_tokens"], body["stream"]) == (9, True)
    assert KEY not in said.out + said.err


def test_an_answer_is_shown_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Seen(io.StringIO):
        pieces = 0

        def flush(self) -> None:
            self.pieces += 1

    output = Seen()
    monkeypatch.setattr("sys.stdout", output)
    with ChatServer(seconds_a_token=0.01) as server:
        assert main(["say 5 words", *where(tmp_path, server.url)]) == 0
    assert output.pieces >= 5


def test_a_question_may_come_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("say 2 words"))
    with ChatServer() as server:
        assert main(["-", "--system", "Be brief.", *where(tmp_path, server.url)]) == 0
    (body,) = server.bodies
    assert [one["role"] for one in body["messages"]] == ["system", "user"]


def test_what_is_no_answer_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer({"hello": [CUT]}) as server:
        options = where(tmp_path, server.url)
        assert main(["hello", *options]) == 1
        assert "fix" in capsys.readouterr().err
        assert main(["hello", *where(tmp_path, server.url, "other-key")]) == 1
    assert "another key" in capsys.readouterr().err
    assert main(["hello", *options]) == 1
    assert "no answer" in capsys.readouterr().err


def test_what_is_no_question_is_refused_before_anything_goes(tmp_path: Path) -> None:
    with ChatServer() as server:
        options = where(tmp_path, server.url)
        assert main(["  ", *options]) == 2
        assert main(["hello", *options, "--parameter", "stream=false"]) == 2
        assert main(["hello"]) == 2
    assert not server.bodies
