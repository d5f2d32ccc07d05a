"""One question by the command, to a server of ours."""

from __future__ import annotations

import io
import subprocess
import sys
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


def test_whoever_reads_the_answer_may_go(tmp_path: Path) -> None:
    with ChatServer(seconds_a_token=0.05) as server:
        command = [sys.executable, "-m", "vllm_ansible.console", "ask", "say 40 words"]
        with subprocess.Popen(
            [*command, *where(tmp_path, server.url)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as asking:
            assert asking.stdout and asking.stderr
            assert asking.stdout.read(5)
            asking.stdout.close()
            assert b"Traceback" not in asking.stderr.read()
    assert asking.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding_shows_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding=encoding))
    with ChatServer() as server:
        assert main(["hello", *where(tmp_path, server.url)]) == 0
    assert shown.getvalue().split() == [
        f"wörd{number}".encode(encoding, "replace") for number in range(3)
    ]


def test_what_is_no_text_or_no_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8"))
    options = where(tmp_path, "http://localhost:1")
    assert main(["-", *options]) == 2
    assert "the question is not text" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["hello", *options, "--timeout-seconds", "0"])
