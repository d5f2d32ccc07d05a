"""What is cut out of a line holds no half of a secret, and a long line is read in bounded time."""

from __future__ import annotations

import io
import time

import pytest

from vllm_ansible.record import outcome, redact
from vllm_ansible.record.diagnosis import first, lines, long_log, match, page
from vllm_ansible.record.diagnosis.verdict import diagnose, shorten

PASSWORD = "S3cretOfTheProxy" + "Qx7" * 8
TOKEN = "hf_" + "Abc123" * 6
HEAD = (
    "docker: Error response from daemon: failed to create task: OCI runtime create failed: "
    "runc create failed: unable to start container process: "
)


def words(length: int) -> str:
    """Return words of exactly this length."""
    return ("word " * length)[: length - 1] + " "


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN])
@pytest.mark.parametrize("head", [HEAD, "RuntimeError: The ring requires an even one: "])
def test_no_half_of_a_secret_is_said(
    head: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "_known", set[str]())
    redact.learn([PASSWORD])
    for padding in (*range(160, 270, 15), *range(310, 400, 15)):
        logs = {"gpu1 serve": f"{head}{words(padding)}{secret} is refused by the proxy"}
        shown = f"{page.page(page.explain(logs))}\n{diagnose('It did not start', logs, {})}"
        assert secret[:8] not in shown, padding


def test_no_half_of_a_secret_is_left_where_a_long_line_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redact, "_known", set[str]())
    redact.learn([PASSWORD])
    for padding in (*range(6000, 6200, 15), *range(6800, 7200, 15)):
        line = f"RuntimeError: {words(padding + 2)}{PASSWORD} {words(9000 - padding)}end"
        text = lines.read(line).text
        assert PASSWORD[-8:] not in text
        assert PASSWORD[:8] not in text


def test_a_line_that_is_too_long_to_keep_ends_with_a_whole_word() -> None:
    content = io.BytesIO(words(65_500).encode() + f"{PASSWORD} refused\nnext\n".encode() * 2)
    kept = long_log.kept(content, long_log.Room(0, 200_000, 200_000))
    assert kept.splitlines()[0].split()[-1] == "word"
    assert kept.splitlines()[1] == "next"


def test_the_message_of_a_task_is_cut_behind_what_is_hidden() -> None:
    said = f"{words(590)}{TOKEN} is refused"
    assert "hf_" not in outcome.failure({"msg": said}).msg
    assert "hf_" not in (outcome.failure({"msg": "failed"}, said).found or "")


def test_a_shortened_line_holds_no_half_of_a_secret() -> None:
    assert "hf_" not in shorten(f"{words(380)}{TOKEN} {words(90)}")


def test_of_a_long_line_both_ends_are_read() -> None:
    read = lines.read(f"ERROR 11-20 10:31:02 [x.py:1] ValueError: {'a' * 100_000} is too long")
    assert read.level == "ERROR"
    assert read.text.startswith("ValueError: aaa")
    assert read.text.endswith("aaa is too long")
    assert len(read.text) < 8300


@pytest.mark.parametrize("word", ["aA_1", "1", "/a"])
def test_a_long_word_is_matched_in_a_time_that_grows_with_it_alone(word: str) -> None:
    """40,000 characters of it once took 42 s of a processor; 200,000 take about one second."""
    line = f"RuntimeError: {word * (200_000 // len(word))}"
    started = time.process_time()
    for signature in match.signatures():
        if signature.pattern:
            signature.pattern.search(line)
    diagnose("It did not start", {"gpu1 serve": line}, {})
    assert time.process_time() - started < 20


@pytest.mark.parametrize("word", ["a", "/a", "ncclSocket"])
def test_a_failing_line_of_one_long_word_is_explained_in_a_time_that_grows_with_it(
    word: str,
) -> None:
    """An image in base64, such as a log of requests holds: 100,000 of `a` once took 26 s."""
    text = word * (200_000 // len(word))
    line = f"ERROR 11-20 10:31:02 [x.py:1] RuntimeError: not supported: {text}"
    started = time.process_time()
    assert page.explain({"gpu1 serve": f"{line}\n" * 4})["cause"]
    assert time.process_time() - started < 20


def test_of_a_healthy_log_the_last_lines_alone_are_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = "INFO 11-20 10:31:02 [x.py:1] a step of the engine took 12 ms\n" * 5000
    taken = []
    read = lines.read
    monkeypatch.setattr(lines, "read", lambda raw: taken.append(raw) or read(raw))
    assert first.last_words({"gpu1 serve": log}) is None
    assert first.last_known({"gpu1 serve": log}) is None
    assert len(taken) <= 2 * first._LAST_LINES
