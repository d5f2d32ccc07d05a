"""The console script, over real runs on a small checkout."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_ansible.cli.main import main


@pytest.fixture(autouse=True)
def in_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("COLUMNS", "100")


def test_up_shows_its_stages_and_where_the_model_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["up", "-i", "inventories/two"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == [
        "run",
        "prepare",
        "serve",
        "endpoint",
        "key",
        "done",
    ]
    assert "3 of 3 fine" in out
    assert "\x1b" not in out


def test_down_that_fails_exits_1_with_cause_and_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "-i", "two"]) == 1
    out = capsys.readouterr().out
    assert "The engine died while loading" in out
    assert "cause    the disk is full" in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-i", "inventories/tow"], "inventory inventories/tow does not exist; there are: "),
        ([], "name an inventory with -i; there are: inventories/two"),
        (["-i", "two", "-e", "change"], "-e 'change' is neither name=value, nor JSON, nor @file"),
        (["-i", "two", "-e", "@no.yml"], "-e @no.yml: No such file or directory"),
        (["-i", "two", "-e", "{a"], "-e {a: not YAML that can be read here"),
        (["-i", "two", "-e", "{a: 2026-13-40}"], "-e {a: 2026-13-40}: not YAML that can be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("vllm-ansible: ")
    assert len(error.splitlines()) == 1
    assert not Path("runs").exists()


def test_an_inventory_that_validate_refuses_exits_2(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "site.yml").write_text((checkout / "playbooks" / "validate.yml").read_text())
    assert main(["up", "-i", "two"]) == 2
    assert "There is no variable clustername" in capsys.readouterr().out


def test_variables_arrive_in_each_form_that_ansible_knows(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "more.yml").write_text("change: true\n")
    for form in ('{"change": true}', "@more.yml", "change=true"):
        assert main(["up", "-i", "two", "-e", form, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"] == 2


def test_status_looks_once_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-i", "two", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [
        " gh-01      dsr1-serve runs on gh-01",
        " gh-02      dsr1-serve runs on gh-02",
    ]


def test_json_is_one_document_for_every_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-i", "two", "--json"]) == 0
    good = json.loads(capsys.readouterr().out)
    assert good["ok"]
    assert {item["gate"] for item in good["evidence"]} == {"status"}

    assert main(["down", "-i", "two", "--json"]) == 1
    bad = json.loads(capsys.readouterr().out)
    assert (bad["ok"], bad["fix"], len(bad["failures"])) == (False, "make room", 2)

    assert main(["up", "-i", "tow", "--json"]) == 2
    assert "does not exist" in json.loads(capsys.readouterr().out)["refused"]


def test_logs_are_what_their_playbook_prints() -> None:
    command = [
        sys.executable,
        "-m",
        "vllm_ansible.cli.main",
        "logs",
        "-i",
        "two",
        "-e",
        "word=loading",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=_environment())
    assert "rank 0 of gh-02: loading" in done.stdout


def test_ctrl_c_ends_an_up_in_order(checkout: Path) -> None:
    (checkout / "site.yml").write_text((checkout / "playbooks" / "waiting.yml").read_text())
    command = [sys.executable, "-m", "vllm_ansible.cli.main", "up", "-i", "two"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as up:
        assert up.stdout
        assert up.stdout.readline().startswith(" run ")
        up.send_signal(signal.SIGINT)
        out, _ = up.communicate(timeout=240)
    assert up.returncode == 1
    assert "the run was stopped on request" in out
    assert "Traceback" not in out


def test_status_on_a_terminal_goes_on_until_it_is_stopped() -> None:
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "vllm_ansible.cli.main",
        "status",
        "-i",
        "two",
        "--interval",
        "0.1",
    ]
    with subprocess.Popen(command, stdout=theirs, env=_environment()) as status:
        os.close(theirs)
        text = b""
        while text.count(b"dsr1-serve runs on gh-01") < 2:
            text += os.read(ours, 4096)
        status.send_signal(signal.SIGINT)
        assert status.wait(timeout=240) == 0
    os.close(ours)
    assert text.count(b"\x1b[H\x1b[J") >= 2
    (record,) = (path for path in Path("runs").iterdir() if not path.is_symlink())
    assert Path("runs/latest").resolve() == record.resolve()


def _environment() -> dict[str, str]:
    """Let the script be found as it is when installed."""
    source = Path(__file__).resolve().parents[3] / "src"
    return {**os.environ, "PYTHONPATH": str(source)}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        # The same view as that of `up`.
        (["down", "-i", "inventories/two"], 1),
        (["status", "-i", "inventories/two", "--json"], 0),
        (["plan", "--help"], 0),
        (["ask", "--help"], 0),
        (["send"], 2),
    ],
)
def test_a_reader_that_leaves_changes_nothing(arguments: list[str], status: int) -> None:
    """As `head` does; the run goes on, and ends with its own status."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ansible.console", *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
