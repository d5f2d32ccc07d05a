"""`vllm-ansible diagnose --logs` names a cause from files alone."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import os
from pathlib import Path

import pytest

from vllm_ansible.cli import diagnose as command
from vllm_ansible.cli.main import main
from vllm_ansible.record.diagnosis import reading
from vllm_ansible.record.diagnosis.long_log import Room

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


def test_of_a_long_log_its_ends_and_what_is_no_routine_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "_ROOM", Room(head=2000, middle=2000, tail=2000))
    routine = "INFO 11-20 10:31:02 [loggers.py:127] Engine 000: Running: 12 reqs\n"
    (tmp_path / "a.log").write_text(f"first\n{routine * 5000}{TAKEN}{routine * 5000}last\n")
    text = reading.read_logs([tmp_path])["a.log"]
    assert len(text) < 8000
    assert (text[:5], text[-5:]) == ("first", "last\n")
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    # Numbers are those of the log, not of what was kept of it.
    assert answer["where"] == "a.log, line 5002 of its log"
    assert answer["lines"] == 10003
    assert answer["signature"] == "port-taken"


def test_an_error_of_a_long_log_that_names_a_level_is_no_routine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ROOM", Room(head=2000, middle=2000, tail=2000))
    routine = "INFO 11-20 10:31:02 [loggers.py:127] Engine 000: Running: 12 reqs\n" * 200
    errors = (
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n",
        "(EngineCore pid=7) ERROR 11-20 10:31:02 [core.py:9] EngineCore failed at level INFO\n",
    )
    (tmp_path / "a.log").write_text(routine + routine.join(errors) + routine)
    text = reading.read_logs([tmp_path])["a.log"]
    assert [one in text for one in errors] == [True, True]


def test_a_long_log_that_serves_after_a_failed_start_holds_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "_ROOM", Room(head=2000, middle=2000, tail=2000))
    routine = "INFO 11-20 10:31:02 [loggers.py:127] Engine 000: Running: 12 reqs\n" * 200
    begins = "(APIServer pid=7) INFO:     Application startup complete.\n"
    (tmp_path / "a.log").write_text(f"{TAKEN}{routine}{begins}{routine}")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.NOTHING
    assert "port" not in capsys.readouterr().out


def test_a_warning_that_a_long_log_repeats_leaves_room_for_the_error_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ROOM", Room(head=2000, middle=4000, tail=2000))
    routine = "INFO 11-20 10:31:02 [loggers.py:127] Engine 000: Running: 12 reqs\n" * 200
    warnings = "".join(f"WARNING 11-20 10:31:02 [x.py:1] slow step {n}\n" for n in range(500))
    (tmp_path / "a.log").write_text(f"{routine}{warnings}{TAKEN}{routine}")
    text = reading.read_logs([tmp_path])["a.log"]
    assert TAKEN in text
    assert text.count("slow step") == 20
    assert len(text) < 9000


def test_that_a_long_log_serves_is_kept_where_there_is_no_room_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_ROOM", Room(head=2000, middle=2000, tail=2000))
    routine = "INFO 11-20 10:31:02 [loggers.py:127] Engine 000: Running: 12 reqs\n" * 200
    notes = "".join(f"WARNING 11-20 10:31:02 [x.py:1] {chr(97 + n) * 90}\n" for n in range(26))
    begins = "(APIServer pid=7) INFO:     Application startup complete.\n"
    (tmp_path / "a.log").write_text(f"{TAKEN}{routine}{notes}{begins}{routine}")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.NOTHING


def test_of_many_long_logs_each_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_BYTES", 8000)
    for name in "abcd":
        (tmp_path / name).write_text("x" * 99 + "\n" + f"{'y' * 99}\n" * 1000)
    logs = reading.read_logs([tmp_path])
    assert sum(len(text) for text in logs.values()) < 10_000


def test_a_line_without_an_end_takes_no_more_than_its_share(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"z" * 20_000_000 + b"\nlast\n")
    text = reading.read_logs([tmp_path])["a.log"]
    assert len(text) < 100_000
    assert text.endswith("\nlast\n")


def test_nothing_to_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--logs", str(tmp_path / "no")]) == command.REFUSED
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.REFUSED
    assert "found no file below" in capsys.readouterr().err


def test_what_lies_beside_logs_is_evidence_and_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/gpu-1-chat-serve.log").write_text("RuntimeError: No CUDA GPUs are available")
    (tmp_path / "report.html").write_text("OSError: [Errno 28] No space left on device")
    values = {"facts": {"gpu-1": {"devices": 8}}}
    told = {"event": "evidence", "gate": "preflight", "values": values, "found": FULL}
    (tmp_path / "events.jsonl").write_text(json.dumps(told) + "\n")
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert answer["logs"] == 1
    assert answer["cause"].startswith("The process sees none of the 8 GPUs of gpu-1")
    assert "The driver of gpu-1 answers with 8 devices (preflight)" in answer["excluded"][0]


def test_the_page_has_the_lines_of_all_hosts_in_order_and_what_is_excluded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = "ERROR 11-20 10:01:20 [x.py:1] RuntimeError: No CUDA GPUs are available\n"
    (tmp_path / "gpu-2.log").write_text(one)
    (tmp_path / "gpu-1.log").write_text("ERROR 11-20 10:00:40 [x.py:1] ValueError: after it\n")
    facts = {"gpu-2": {"devices": {"value": 8, "source": "preflight"}}}
    document = {"facts": facts, "clocks": {"gpu-1": 0.0, "gpu-2": 90.0}}
    (tmp_path / "facts.json").write_text(json.dumps(document))
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.FOUND
    page = capsys.readouterr().out
    assert "found   RuntimeError: No CUDA GPUs are available" in page
    assert "Excluded:\n          The driver of this host shows no device" in page
    lines = page.partition("The lines, in the order of time:\n")[2].splitlines()
    assert lines[0].strip() == "11-20 09:59:50 gpu-2: RuntimeError: No CUDA GPUs are available"
    assert lines[1].strip() == "11-20 10:00:40 gpu-1: ValueError: after it"


def test_logs_and_an_inventory_are_refused_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--logs", str(tmp_path), "-i", "lab"]) == command.REFUSED
    assert "found both" in capsys.readouterr().err


def test_an_unknown_inventory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "-i", "/nowhere/at/all"]) == command.REFUSED
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_the_page_names_host_rank_and_stage_and_fits_one_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu-2").mkdir()
    started = "INFO 11-20 10:00:00 [core.py:1] Capturing CUDA graphs: 1/3\n"
    failed = "ERROR 11-20 10:00:{:02} [core.py:1] RuntimeError: no word of this is known, nor {}\n"
    (tmp_path / "gpu-2/serve.log").write_text(
        f"{started}(Worker_TP3 pid=9) ERROR 11-20 10:00:01 [x.py:1] torch.OutOfMemoryError: CUDA"
        f" out of memory\n{''.join(failed.format(n, 'x' * 300) for n in range(2, 60))}"
    )
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.FOUND
    said = capsys.readouterr().out
    for row in ("  host    gpu-2\n", "  rank    Worker_TP3\n", "  time    11-20 10:00:01\n"):
        assert row in said
    assert "  stage   capturing graphs, 1 of 3\n" in said
    rows = said.splitlines()
    assert (rows[1][:9], len(rows) <= 30) == ("  cause  ", True)
    assert max(len(row) for row in rows) <= 100


def test_an_unknown_line_comes_with_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("ValueError: nobody has met this\n")
    main(["diagnose", "--logs", str(tmp_path)])
    said = capsys.readouterr().out
    assert "next    read the lines around it (a.log, line 1 of its log); --bundle FILE" in said


def test_of_binary_files_is_said_that_they_are_no_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = os.urandom(3_000_000)
    (tmp_path / "core.1").write_bytes(noise)
    assert main(["diagnose", "--logs", str(tmp_path / "core.1")]) == command.REFUSED
    assert "found core.1: binary, no log" in capsys.readouterr().err
    others = {
        "a.journal": b"LPKSHHRH" + noise[:900],
        "b.log.2.zst": b"\x28\xb5\x2f\xfd" + noise[:900],
        "c.zip": b"PK\x03\x04" + noise[:900],
        "d": b"\x7fELF" + bytes(900),
        "e.log.gz": gzip.compress(noise[:900]),
    }
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "serve.log").write_text(TAKEN)
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert (answer["logs"], answer["signature"]) == (1, "port-taken")
    assert set(answer["unread"]) == {"core.1", *others}
    assert "journalctl --file" in answer["unread"]["a.journal"]
    assert "zstd -d" in answer["unread"]["b.log.2.zst"]
    main(["diagnose", "--logs", str(tmp_path)])
    page = capsys.readouterr().out
    assert "Not read:\n          a.journal: systemd's journal; write it out with" in page
    assert "and 3 more" in page


@pytest.mark.parametrize(
    "content",
    [
        f"INFO all is well\n{TAKEN}".encode("utf-16"),
        codecs.BOM_UTF16_BE + f"INFO all is well\n{TAKEN}".encode("utf-16-be"),
        f"INFO all is well\r\n{TAKEN}".encode("utf-16"),
        f"INFO all is well\n{TAKEN}".encode("utf-8-sig"),
        f"INFO all is well\n{TAKEN}".replace("\n", "\r\n").encode(),
        f"INFO all is well \xfcber alles\n{TAKEN}".encode("latin-1"),
        f"{'模型加载失败' * 99}\n{TAKEN}".encode("gbk"),
        f"{'Загрузка модели' * 99}\n{TAKEN}".encode("koi8-r"),
        # Written on after the file was cut, and a block that a crash left.
        bytes(200_000) + f"INFO all is well\n{TAKEN}".encode(),
        f"INFO all is well\n{TAKEN}".encode() + bytes(200_000),
        gzip.compress(f"INFO all is well\n{TAKEN}".encode()),
        gzip.compress(f"INFO all is well\n{TAKEN}{os.urandom(9_999).hex()}".encode())[:-99],
        bz2.compress(f"INFO all is well\n{TAKEN}".encode()),
        lzma.compress(f"INFO all is well\n{TAKEN}".encode()),
        f"\x1b[?25hINFO\x1b[0m well\n\x1b[1;31m{TAKEN[:5]}\x1b(B\x1b[m{TAKEN[5:]}".encode(),
        f"INFO well\n\x1b]0;name\x07\x1b[38;5;196m{TAKEN[:20]}\x1b[0m {TAKEN[21:]}".encode(),
    ],
    ids=[
        "utf-16",
        "utf-16-be",
        "utf-16-crlf",
        "utf-8-mark",
        "crlf",
        "latin-1",
        "gbk",
        "koi8-r",
        "nul-first",
        "nul-last",
        "gz",
        "gz-cut",
        "bz2",
        "xz",
        "colours",
        "titles",
    ],
)
def test_a_log_is_read_in_whatever_form_it_was_left(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.log.1").write_bytes(content)
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert (answer["signature"], answer["where"][-17:]) == ("port-taken", "line 2 of its log")
    assert answer["found"].startswith("OSError: [Errno 98]")


def test_a_file_that_cannot_be_read_does_not_keep_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.log").write_text(TAKEN)
    whole = gzip.compress(TAKEN.encode() + os.urandom(9_999).hex().encode())
    (tmp_path / "cut.log.gz").write_bytes(whole[:-99])
    # Of memory that nobody mapped no byte can be read, whoever asks for it.
    (tmp_path / "other.log").symlink_to("/proc/self/mem")
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.FOUND
    page = capsys.readouterr().out
    assert "already listens" in page
    assert "Not read:\n          cut.log.gz: its rest: Compressed file ended" in page
    assert "other.log: Input/output error" in page


def test_so_many_files_as_are_allowed_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2000):
        (tmp_path / f"worker-{number}.err").write_text(f"INFO {number} is well\n")
    (tmp_path / "worker-1234.err").write_text(TAKEN)
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    assert json.loads(capsys.readouterr().out)["where"].startswith("worker-1234.err")
    (tmp_path / "one-more").write_text(TAKEN)
    assert main(["diagnose", "--logs", str(tmp_path)]) == command.REFUSED
    assert "at most 2000 logs, found 2001" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("worker", "other"),
    [
        ("[pod/worker-1/engine] ", "[pod/worker-0/engine] "),
        ("worker-1  | ", "head      | "),
        ("\x1b[36mworker-1  | \x1b[0m", "\x1b[33mhead-1    | \x1b[0m"),
    ],
)
def test_what_several_containers_wrote_into_one_log_is_read_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], worker: str, other: str
) -> None:
    # The other one serves, and stands amid the lines of a traceback.
    wrote = [
        f"{worker}Traceback (most recent call last):",
        f"{other}INFO:     Application startup complete.",
        f'{worker}  File "/app/serve.py", line 3, in serve',
        f"{other}INFO:     127.0.0.1:5 - GET /health HTTP/1.1 200 OK",
        f"{worker}{FULL.strip()}",
        f"{other}INFO:     Application startup complete.",
        f"{other}INFO:     127.0.0.1:5 - GET /health HTTP/1.1 200 OK",
    ]
    (tmp_path / "all.log").write_text("\n".join(wrote))
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert answer["signature"] == "disk-full"
    assert answer["where"].startswith("worker-1")
    assert answer["where"].endswith("in all.log, line 5 of its log")
    assert (answer["logs"], answer["lines"]) == (1, 7)


def test_a_table_is_not_taken_for_lines_of_containers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text(f"gpu-0 | ok\ngpu-1 | ok\n{TAKEN}{FULL}done\n")
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert answer["where"] == "a.log, line 3 of its log"


@pytest.mark.parametrize(("usual", "bad"), [("info  | ", "error | "), ("0.10 | ", "0.25 | ")])
def test_a_column_of_levels_or_of_seconds_names_no_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], usual: str, bad: str
) -> None:
    (tmp_path / "a.log").write_text(f"{usual}it starts\n{bad}{TAKEN}{usual}it ends\n")
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert answer["where"] == "a.log, line 2 of its log"


def test_of_containers_in_one_log_without_times_the_first_line_is_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "b | starting",
        f"a | {FULL.strip()}",
        "b | OSError: [Errno 98] Address already in use",
    ]
    (tmp_path / "all.log").write_text("\n".join(lines))
    assert main(["diagnose", "--json", "--logs", str(tmp_path)]) == command.FOUND
    answer = json.loads(capsys.readouterr().out)
    assert answer["where"].startswith("a in all.log, line 2")
