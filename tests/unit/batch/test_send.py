"""Whole runs of the command against a real server of ours."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulators.chat_server import CUT, DROP, KEY, STALL, ChatServer
from tests.ports import free_port
from vllm_ansible.batch.command import main
from vllm_ansible.batch.prompts import PromptFile
from vllm_ansible.batch.results import Results, Unnoted

from .conftest import Batch

NOWHERE = "say 1 nowhere"


def test_every_prompt_is_answered_by_its_tag(batch: Batch) -> None:
    batch.write("say 3 a", "say 20 b", "think of c")
    with ChatServer(seconds_a_token=0.002) as server:
        status, found = batch.send(server)
    assert (status, found["ok"], found["answered"], found["failed"]) == (0, True, 3, 0)
    records = batch.records()
    assert list(records) == ["a0", "a1", "a2"]
    assert records["a1"]["text"] == "".join(f"wörd{number} " for number in range(20))
    assert (records["a1"]["completion_tokens"], records["a1"]["prompt_tokens"]) == (20, 3)
    assert records["a1"]["finish_reason"] == "stop"
    assert records["a2"]["reasoning"] == "hm, "
    assert records["a0"]["reasoning"] is None
    assert {record["sent"] for record in records.values()} == {1}
    assert found["completion_tokens"] == 26
    assert not batch.journal.exists()


def test_latencies_of_a_stream_are_those_of_the_server(batch: Batch) -> None:
    batch.write("say 20 x")
    with ChatServer(seconds_a_token=0.02) as server:
        batch.send(server)
    (record,) = batch.records().values()
    assert record["itl_ms_median"] == pytest.approx(20, rel=0.5)
    assert record["ttft_ms"] < record["total_ms"] / 4
    assert record["total_ms"] == pytest.approx(420, rel=0.5)


def test_without_a_stream_only_the_whole_answer_is_timed(batch: Batch) -> None:
    batch.write("say 4 x", "think")
    with ChatServer() as server:
        status, _ = batch.send(server, "--no-stream")
        assert [body["stream"] for body in server.bodies] == [False, False]
    records = batch.records()
    assert status == 0
    assert records["a0"]["completion_tokens"] == 4
    assert records["a1"]["reasoning"] == "hm, "
    assert records["a0"]["ttft_ms"] is None
    assert records["a0"]["total_ms"] > 0


def test_no_more_requests_are_in_flight_than_allowed(batch: Batch) -> None:
    batch.write(*(f"say 5 {number}" for number in range(40)))
    with ChatServer(seconds_a_token=0.005) as server:
        batch.send(server)
        assert server.most_in_flight == 4


def test_system_and_parameters_travel(batch: Batch) -> None:
    batch.write("say 1 x")
    with ChatServer() as server:
        batch.send(
            server, "--system", "Be brief.", "--parameter", "max_tokens=7", "--parameter", "user=u"
        )
        (body,) = server.bodies
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["max_tokens"], body["user"], body["model"]) == (7, "u", "echo")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fault",
    [(503, {}), (429, {}), (500, {}), DROP, CUT, {"error": {"message": "gone", "code": 500}}],
    ids=["503", "429", "500", "drop", "cut", "error in the stream"],
)
def test_what_may_pass_is_sent_again_and_the_record_says_how_often(
    batch: Batch, fault: object
) -> None:
    batch.write("say 3 x", "say 3 y")
    with ChatServer(faults={"say 3 x": [fault, fault]}) as server:  # type: ignore[list-item]
        status, found = batch.send(server)
        assert server.asked == {"say 3 x": 3, "say 3 y": 1}
    assert status == 0
    records = batch.records()
    assert (records["a0"]["sent"], len(records["a0"]["failures"])) == (3, 2)
    assert (records["a1"]["sent"], records["a1"]["failures"]) == (1, [])
    assert found["sent_again"] == 2


@pytest.mark.usefixtures("quick")
def test_a_stream_that_falls_silent_is_sent_again(batch: Batch) -> None:
    batch.write("say 3 x")
    with ChatServer(faults={"say 3 x": [STALL]}) as server:
        status, _ = batch.send(server, "--silence-seconds", "0.2")
        assert server.given_up == 1
    assert status == 0
    assert batch.records()["a0"]["failures"] == ["nothing came for 0.2 s"]


@pytest.mark.usefixtures("quick")
def test_an_error_without_a_code_is_told_with_no_status_that_nobody_sent(batch: Batch) -> None:
    batch.write("say 3 x")
    with ChatServer(faults={"say 3 x": [{"error": {"message": "gone"}}]}) as server:
        assert batch.send(server)[0] == 0
    assert batch.records()["a0"]["failures"] == ["gone"]


def test_what_does_not_pass_is_sent_once_and_told(batch: Batch) -> None:
    batch.write("say 3 x", "say 3 y")
    with ChatServer(faults={"say 3 x": [(400, {})]}) as server:
        status, found = batch.send(server)
        assert server.asked["say 3 x"] == 1
    assert (status, found["failed"], found["answered"]) == (1, 1, 1)
    record = batch.records()["a0"]
    assert (record["ok"], record["error"]) == (False, "HTTP 400: refused with 400")
    assert batch.journal.exists()


def test_an_answer_that_takes_too_long_is_given_up(batch: Batch) -> None:
    batch.write("say 1000 x")
    with ChatServer(seconds_a_token=0.01) as server:
        status, _ = batch.send(server, "--timeout-seconds", "0.3")
    assert status == 1
    record = batch.records()["a0"]
    assert (record["error"], record["sent"]) == ("not answered within 0.3 s", 1)


@pytest.mark.usefixtures("quick")
def test_a_prompt_is_given_up_after_its_retries_and_tried_by_the_next_run(batch: Batch) -> None:
    batch.write("say 3 x", "say 3 y")
    with ChatServer(faults={"say 3 x": [(503, {})] * 3}) as server:
        assert batch.send(server, "--retries", "2")[0] == 1
        assert batch.records()["a0"]["sent"] == 3
        status, found = batch.send(server, "--retries", "2")
        assert server.asked == {"say 3 x": 4, "say 3 y": 1}
    assert (status, found["answered_before"], found["answered"]) == (0, 1, 1)
    assert batch.records()["a0"]["sent"] == 4
    assert list(batch.records()) == ["a0", "a1"]
    assert not batch.journal.exists()


def test_retry_after_is_obeyed_by_all(batch: Batch) -> None:
    batch.write("say 1 x", *("say 2 y" for _ in range(40)))
    faults = {"say 1 x": [(429, {"Retry-After": "1"})]}
    with ChatServer(faults=faults, seconds_a_token=0.05) as server:
        status, _ = batch.send(server)
        assert server.asked["say 1 x"] == 2
        refused = server.arrived[0]
        assert [one for one in server.arrived if refused + 0.2 < one < refused + 0.95] == []
    assert status == 0


def test_a_server_that_asks_for_too_long_a_wait_ends_the_run(batch: Batch) -> None:
    batch.write("say 1 x")
    with ChatServer(faults={"say 1 x": [(503, {"Retry-After": "4000"})]}) as server:
        status, found = batch.send(server)
    assert status == 1
    assert "asks to wait 4000 s" in found["stopped"]


@pytest.mark.parametrize("wrong", ["--model", "--key-file"])
def test_what_no_prompt_can_survive_ends_the_run_at_once(batch: Batch, wrong: str) -> None:
    batch.write(*(f"say 1 {number}" for number in range(500)))
    other = batch.directory / "other"
    other.write_text("not-the-key\n")
    with ChatServer() as server:
        status, found = batch.send(server, wrong, str(other))
        assert sum(server.asked.values()) <= 4
    assert status == 1
    assert ("HTTP 404" if wrong == "--model" else "HTTP 401: Unauthorized") in found["stopped"]
    assert "not-the-key" not in json.dumps(found)


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_not_there_ends_the_run_with_nothing_sent(batch: Batch) -> None:
    batch.write("say 1 x", "say 1 y")
    with ChatServer() as server:
        pass
    status, found = batch.send(server, "--patience-seconds", "0.5")
    assert status == 1
    assert "after the last sign of life" in found["stopped"]
    assert batch.journal.read_text() == ""
    assert batch.records() == {}


@pytest.mark.usefixtures("quick")
def test_no_hope_is_lost_while_a_request_is_in_flight(batch: Batch) -> None:
    batch.write("say 10 slow", "say 1 x")
    faults = {"say 1 x": [(503, {})] * 30}
    with ChatServer(faults=faults, seconds_a_token=0.05) as server:  # type: ignore[arg-type]
        more = ("--patience-seconds", "0.1", "--retries", "1000", "--no-stream")
        status, found = batch.send(server, *more)
    # The slow answer came; only then was the other one without hope.
    assert (status, found["answered"]) == (1, 1)
    assert batch.records().keys() == {"a0"}


@pytest.mark.usefixtures("quick")
def test_a_server_that_comes_back_is_waited_for(batch: Batch) -> None:
    batch.write(*(f"say 2 {number}" for number in range(8)))
    # No port of the kernel's own: it could be given to another program meanwhile.
    port = free_port()
    with ChatServer(port=port) as server:
        pass
    arguments = [sys.executable, "-m", "vllm_ansible.console", "send", *batch.arguments(server)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as sender:
        time.sleep(1.5)
        with ChatServer(port=port) as again:
            output, _ = sender.communicate(timeout=240)
            assert set(again.asked.values()) == {1}
    assert "8 of 8 answered" in output


def test_tls_needs_the_servers_own_authority(batch: Batch, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
         certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    batch.write("say 1 x")
    with ChatServer(tls=context) as server:
        status, found = batch.send(server)
        assert status == 1
        assert "certificate" in found["stopped"].lower()
        assert batch.send(server, "--ca", str(certificate))[0] == 0


def test_certificates_that_are_none_are_refused_before_anything_goes(batch: Batch) -> None:
    batch.write("say 1 x")
    key = batch.directory / "key"
    with ChatServer() as server:
        for name in (str(key), str(batch.directory / "absent")):
            assert main([*batch.arguments(server), "--ca", name]) == 2
            told = batch.capsys.readouterr().err
            assert "--ca does not name certificates" in told
            assert name in told
        assert not server.asked


def test_a_key_that_a_server_says_again_is_not_kept(batch: Batch) -> None:
    batch.write("say 1 x", "say 1 y")
    told = {"error": {"message": f"no right: {KEY}", "code": 400}}
    with ChatServer(faults={"say 1 x": [told]}) as server:
        assert batch.send(server)[0] == 1
    assert batch.records()["a0"]["error"] == "HTTP 400: no right: <hidden>"
    assert KEY not in batch.output.read_text()


def test_prompts_that_are_added_meanwhile_do_not_stand_for_those_that_failed(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = batch.directory / "prompts.jsonl"
    path.write_text('{"tag": "a0", "prompt": "say 1 x"}\n')
    first = PromptFile.digests

    def then_more(prompts: PromptFile, model: str) -> dict[str, str]:
        found = first(prompts, model)
        with path.open("a") as file:
            file.write('{"tag": "a1", "prompt": "say 1 y"}\n')
        return found

    monkeypatch.setattr(PromptFile, "digests", then_more)
    with ChatServer(faults={"say 1 x": [(400, {})]}) as server:
        status = main([str(path), *batch.arguments(server)[1:]])
        assert "say 1 y" not in server.asked
    assert status == 2
    assert "changed while they were sent" in batch.capsys.readouterr().err


def test_a_journal_that_cannot_be_written_is_no_broken_connection(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sending(_: Results, __: str) -> None:
        raise Unnoted(OSError(28, "No space left on device"))

    batch.write("say 1 x")
    monkeypatch.setattr(Results, "sending", sending)
    with ChatServer() as server:
        assert main(batch.arguments(server)) == 1
        assert not server.asked
    assert "No space left on device" in batch.capsys.readouterr().err
    assert batch.records() == {}
