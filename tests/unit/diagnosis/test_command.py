"""`vllm-ansible diagnose --logs` names a cause from files alone."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from vllm_ansible.cli import main
from vllm_ansible.diagnosis import command

FULL = "OSError: [Errno 28] No space left on device: '/models/x'\n"
TAKEN = "ERROR 11-20 10:31:02 [x.py:1] OSError: [Errno 98] Address already in use\n"


def test_a_directory_of_logs_gives_the_first_cause_and_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu1").mkdir()
    (tmp_path / "gpu1/serve.log").write_text(f"INFO all is well\n{TAKEN}")
    with gzip.open(tmp_path / "gpu2.log.gz", "wt") as content:
        content.write("ERROR 11-20 10:41:02 [x.py:1] RuntimeError: later\n")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.FOUND
    said = capsys.readouterr().out
    assert "gpu1/serve.log, line 2 of its log" in said
    assert "already listens" in said
    assert "ss -ltnp" in said


def test_the_document_holds_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.log"
    file.write_text(TAKEN + FULL)
    assert main(["diagnose", "--json", "--logs", str(file)]) == command.FOUND
    told = json.loads(capsys.readouterr().out)
    assert (told["signature"], told["where"]) == ("port-taken", "a.log, line 1 of its log")
    assert [one["signature"] for one in told["others"]] == ["disk-full"]


def test_a_healthy_log_has_nothing_to_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("INFO:     Application startup complete.\n")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.NOTHING
    assert capsys.readouterr().out == "No line of 1 log(s), 1 lines says that something failed.\n"


def test_what_is_not_known_is_said_to_be_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("ValueError: nobody has met this\n")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.FOUND
    assert "cause   not known" in capsys.readouterr().out


def test_secrets_of_a_log_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "hf_" + "a" * 34
    (tmp_path / "a.log").write_text(f"ValueError: token {secret} is wrong\n")
    main(["diagnose", "--logs", str(tmp_path)])
    assert secret not in capsys.readouterr().out


def test_of_a_long_log_head_and_tail_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_HALF_BYTES", 100)
    file = tmp_path / "a.log"
    file.write_text(f"first\n{'x' * 500}\nlast\n")
    text = command.read_logs([file])["a.log"]
    assert len(text) == 201
    assert (text[:5], text[-5:]) == ("first", "last\n")


def test_nothing_to_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--logs", str(tmp_path / "no")]) == command.REFUSED
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.REFUSED
    assert "found no file below" in capsys.readouterr().err
