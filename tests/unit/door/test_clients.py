"""The file of clients: what it may hold, and how the command changes it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from vllm_ansible.cli.main import main
from vllm_ansible.door.clients import Client, fault, map_lines, parse, written
from vllm_ansible.inventory.secret_files import missing_secrets

DIGEST = "ab" * 32
Key = Callable[..., tuple[int, str, str]]


@pytest.fixture
def key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Key:
    """Return a way to run the command on a file; it returns status, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main(["key", words[0], "--file", str(tmp_path / "clients.yml"), *words[1:]])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_a_key_is_printed_once_and_only_its_digest_kept(key: Key, tmp_path: Path) -> None:
    file = tmp_path / "clients.yml"
    status, said, errors = key(
        *("add", "alice", "--requests-per-minute", "60", "--at-once", "4"),
        *("--tokens-per-day", "1000000", "--model", "chat", "--model", "org/big"),
    )
    assert status == 0
    made = said.strip()
    assert said == f"{made}\n" and made.startswith("sk-") and len(made) >= 40
    assert "playbooks/route.yml" in errors
    assert file.stat().st_mode & 0o777 == 0o600
    assert made not in file.read_text()
    (alice,) = parse(file.read_text()).values()
    assert alice.key_sha256 == hashlib.sha256(made.encode()).hexdigest()
    limits = (alice.requests_per_minute, alice.at_once, alice.tokens_per_day, alice.models)
    assert limits == (60, 4, 1_000_000, ("chat", "org/big"))
    assert key("add", "bob")[1].strip() != made
    assert list(parse(file.read_text())) == ["alice", "bob"]
    assert os.listdir(tmp_path) == ["clients.yml"]


def test_clients_are_listed_and_revoked(key: Key) -> None:
    key("add", "alice", "--at-once", "2")
    key("add", "bob", "--model", "m", "--tokens-per-month", "900", "--priority", "-5")
    status, said, _ = key("list")
    rows = [line.split() for line in said.splitlines()]
    assert status == 0
    assert rows[0][:2] == ["client", "requests_per_minute"]
    assert [row[:7] for row in rows[1:]] == [
        ["alice", "-", "2", "-", "-", "0", "all"],
        ["bob", "-", "-", "-", "900", "-5", "m"],
    ]
    assert key("revoke", "alice")[0] == 0
    assert "alice" not in key("list")[1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list",), "does not exist; vllm-ansible key add makes it"),
        (("revoke", "alice"), "does not exist"),
        (("add", "a b"), "'a b' is no name"),
        (("add", "-"), "'-' is no name"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    key: Key, words: tuple[str, ...], told: str
) -> None:
    status, said, errors = key(*words)
    assert (status, said) == (2, "")
    assert told in errors


def test_a_client_that_is_there_or_is_not_is_named(key: Key, tmp_path: Path) -> None:
    key("add", "alice")
    before = (tmp_path / "clients.yml").read_text()
    assert "has a client alice already" in key("add", "alice")[2]
    assert "has no client bob; it has: alice" in key("revoke", "bob")[2]
    assert (tmp_path / "clients.yml").read_text() == before


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "x", "1000000000001"])
def test_a_limit_is_a_whole_number(key: Key, number: str) -> None:
    with pytest.raises(SystemExit):
        key("add", "alice", f"--at-once={number}")


def test_a_file_that_is_none_is_left_as_it_is(key: Key, tmp_path: Path) -> None:
    file = tmp_path / "clients.yml"
    file.write_text("clients: [1]\n")
    status, _, errors = key("add", "alice")
    assert (status, file.read_text()) == (2, "clients: [1]\n")
    assert "holds no mapping of names below `clients`" in errors


def test_two_commands_at_once_lose_no_client(tmp_path: Path) -> None:
    file = tmp_path / "clients.yml"
    code = "import sys; from vllm_ansible.door.command import main; sys.exit(main(sys.argv[1:]))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, "add", f"c{number}", "--file", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    assert [one.wait(300) for one in running] == [0] * 4
    assert set(parse(file.read_text())) == {f"c{number}" for number in range(4)}


def test_a_link_to_the_file_stays_a_link(key: Key, tmp_path: Path) -> None:
    real = tmp_path / "real.yml"
    real.write_text("clients: {}\n")
    (tmp_path / "clients.yml").symlink_to(real)
    assert key("add", "alice")[0] == 0
    assert (tmp_path / "clients.yml").is_symlink()
    assert list(parse(real.read_text())) == ["alice"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("[", "is not valid YAML in line 1"),
        ("2026-13-40", "is not valid YAML"),
        ("other: {}", "does not hold the one mapping `clients`"),
        ("clients: {a b: {}}", "holds the name 'a b'"),
        ("clients: {a: 1}", "has no mapping for a"),
        ("clients: {a: {key: x}}", "has an unknown key of a"),
        ("clients: {a: {key_sha256: AB}}", "64 hexadecimal digits in key_sha256 of a"),
        (f"clients: {{a: {{key_sha256: {DIGEST}, at_once: 0}}}}", "in at_once of a"),
        (f"clients: {{a: {{key_sha256: {DIGEST}, at_once: true}}}}", "in at_once of a"),
        (f"clients: {{a: {{key_sha256: {DIGEST}, priority: high}}}}", "in priority of a"),
        (f"clients: {{a: {{key_sha256: {DIGEST}, models: m}}}}", "no list of names in models of a"),
        (
            f"clients: {{a: {{key_sha256: {DIGEST}}}, b: {{key_sha256: {DIGEST}}}}}",
            "gives a and b the same key",
        ),
    ],
)
def test_what_is_no_file_of_clients_is_said_without_a_digest(entry: str, told: str) -> None:
    found = fault(entry)
    assert told in found
    assert DIGEST not in found


def test_validate_refuses_what_no_door_can_use_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "clients.yml"

    def problems() -> list[str]:
        found = missing_secrets({"door_clients_file": str(file)}, lambda name, _: name)
        return [str(one.found) for one in found]

    assert problems() == [f"{file}: does not exist"]
    file.write_text(f"clients: {{a: {{key_sha256: {DIGEST}, at_once: 0}}}}\n")
    (found,) = problems()
    assert "in at_once of a" in found and DIGEST not in found
    file.write_text(f"clients: {{a: {{key_sha256: {DIGEST}}}}}\n")
    assert problems() == []


def test_what_is_written_is_what_is_read_and_nobody_may_be_let_in() -> None:
    clients = {"alice": Client(DIGEST, 1, None, 3, ("größer;m",), "2026-11-25", 9, -2)}
    assert parse(written(clients)) == clients
    assert yaml.safe_load(written(clients))["clients"]["alice"]["models"] == ["größer;m"]
    model = "größer;m".encode().hex()
    assert map_lines(clients) == f"{DIGEST.upper()} alice;1;;3;{model};9;-2\n"
    assert parse("clients:\n") == {} and map_lines({}) == ""
