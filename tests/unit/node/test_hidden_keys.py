"""A process that prints a secret of its cluster leaves none in its log, under supervisord."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.launcher import Hiding, read_secrets

from .conftest import Host, alive, wait_until

HERE = Path(__file__).parent
KEY = "k-0123'456789abk-0123'4"
TOKEN = "ray-token-ray-token"  # noqa: S105 of no cluster
WAYS = ["once", "twice", "bytes", "boundary"]


def secrets(cluster_dir: Path) -> Path:
    """Put the secrets of a cluster where a host has them, and return the file of the key."""
    directory = cluster_dir / "secrets"
    directory.mkdir(parents=True)
    (directory / "api_key").write_text(f"{KEY}\n")
    (directory / "ray_token").write_text(TOKEN)
    (directory / "object_storage_credentials").write_text("aws_secret_access_key = sword/fish+1\n")
    return directory / "api_key"


def printing(how: str, key_file: Path) -> dict[str, Any]:
    return {"argv": [sys.executable, str(HERE / "printing.py"), how, str(key_file)]}


def clean(text: str) -> bool:
    """Tell whether a log holds nothing of the key, neither as it is nor as Python prints it."""
    return KEY not in text and KEY[:12] not in text and KEY[-12:] not in text


@pytest.mark.parametrize("how", WAYS)
def test_a_key_that_is_printed_is_not_in_the_log(host: Host, how: str) -> None:
    log = Path(host.manage(printing(how, secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    text = log.read_text()
    assert clean(text)
    assert text.startswith("begins\n") and text.endswith("ends\n")
    assert "non-default args: {'api_key': ['<hidden>'], 'port': 8000}\n" in text


def test_nothing_else_of_the_log_is_lost_or_changed(host: Host) -> None:
    log = Path(host.manage(printing("much", secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    lines = log.read_text().splitlines()
    assert lines[1:-2] == [str(number) for number in range(200_000)]
    assert lines[0] == "begins" and "<hidden>" in lines[-2] and lines[-1] == "ends"


def test_the_last_words_of_a_killed_process_are_in_its_log(host: Host) -> None:
    log = Path(host.manage(printing("killed", secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    assert log.read_text().endswith("last words") and clean(log.read_text())
    assert host.processes()["e0-serve"]["exit_status"] == 128 + signal.SIGKILL


def test_a_filter_that_was_killed_is_started_again(host: Host) -> None:
    go = host.root / "go"
    key_file = secrets(host.cluster_dir)
    wait = f"until [ -e '{go}' ]; do sleep 0.05; done"
    program = f"echo one; {wait}; cat '{key_file}'; sleep 600"
    started = host.manage({"argv": ["/bin/sh", "-c", program]})
    log = Path(started["log"])
    wait_until(lambda: log.read_text() == "one\n")
    launcher = host.state()["launcher"]["pid"]
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    (first,) = {int(child) for child in children} - {started["pid"]}
    os.kill(first, signal.SIGKILL)
    go.touch()
    wait_until(lambda: log.read_text() == "one\n<hidden>\n")
    assert alive(started["pid"])


def test_a_filter_that_its_launcher_leaves_ends_with_what_it_reads(host: Host) -> None:
    secrets(host.cluster_dir)
    host.manage({"argv": ["/bin/sleep", "600"]})
    os.kill(host.state()["launcher"]["pid"], signal.SIGKILL)
    wait_until(lambda: not host.processes()["e0-serve"]["running"])
    wait_until(lambda: not [pid for pid in host.everything() if names_launcher(pid)])


def names_launcher(pid: int) -> bool:
    """Tell whether a process is a launcher or a filter of one."""
    try:
        return b"launcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_what_comes_in_pieces_is_hidden_wherever_it_is_cut() -> None:
    words = ["abcdabcd", "abcdabcdefgh", "xabcdabcdx", TOKEN]
    hiding = Hiding(words)
    text = "-".join((*words, "abcdab")).encode()
    whole = b"<hidden>-<hidden>-<hidden>-<hidden>-abcdab"
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            told, held = b"", b""
            for piece in (text[:first], text[first:second], text[second:]):
                part, held = hiding.split(held + piece)
                told += part
            assert told + hiding.split(held, last=True)[0] == whole


def test_what_holds_no_begin_of_a_secret_waits_for_nothing() -> None:
    assert Hiding([TOKEN]).split(b"a line\n") == (b"a line\n", b"")
    assert Hiding([TOKEN]).split(b"a line of ray-") == (b"a line of ", b"ray-")


def test_secrets_are_read_from_regular_files_alone(tmp_path: Path) -> None:
    directory = secrets(tmp_path).parent
    (directory / "link").symlink_to("/etc/hostname")
    os.mkfifo(directory / "fifo")
    words, unread = read_secrets(str(directory))
    assert words == {KEY, TOKEN, "sword/fish+1"}
    assert unread == [str(directory / "link")]
