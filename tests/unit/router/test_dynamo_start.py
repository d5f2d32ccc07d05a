"""How Dynamo's processes start: who has the password, and when etcd has an address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

START = Path(__file__).parents[3] / "roles/router/files/dynamo/start.py"
SHOW = "import json, os, sys; print(json.dumps([sys.argv, dict(os.environ)]))"
# Answers on the socket that it is told to listen on, as etcd's gateway does, and keeps how it was
# called and what it was asked.
ETCD = """#!{python}
import json, os, socket, sys, time
from http.server import BaseHTTPRequestHandler
import socketserver
(url,) = [one.partition("=")[2] for one in sys.argv if one.startswith("--listen-client-urls=")]
with open("calls", "a") as calls:
    print(json.dumps([sys.argv[1:], sorted(os.environ)]), file=calls)
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open("calls", "a") as calls:
            print(json.dumps([self.path, body]), file=calls)
        refuses = {refuses!r} and self.path.endswith("enable")
        self.send_response(412 if refuses else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"no" if refuses else b"{{}}")
    def address_string(self):
        return "client"
    def log_message(self, *a):
        pass
if url.startswith("unix://"):
    os.mkdir("etcd")
    socketserver.UnixStreamServer(url.partition("//")[2], Handler).serve_forever()
"""


def run(directory: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-s", "-E", START, directory, *words]
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False
    )


def etcd(tmp_path: Path, refuses: bool = False) -> Path:
    program = tmp_path / "etcd-program"
    program.write_text(ETCD.format(python=sys.executable, refuses=refuses))
    program.chmod(0o755)
    return program


def calls(directory: Path) -> list[Any]:
    return [json.loads(line) for line in (directory / "calls").read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    return directory


def test_temporary_files_of_a_start_are_gone_with_the_next_and_others_stay(place: Path) -> None:
    leave = "import os, sys, tempfile; print(tempfile.mkstemp(suffix=sys.argv[1])[1], end='')"
    first, second, other = (
        Path(run(place, "other", sys.executable, "-c", leave, word).stdout)
        for word in ("a", "a", "b")
    )
    assert all(one.is_relative_to(place) for one in (first, second, other))
    assert (first.exists(), second.exists(), other.exists()) == (False, True, True)
    assert other.parent.stat().st_mode & 0o777 == 0o700


def test_all_have_the_password_that_the_first_has_made(place: Path) -> None:
    seen, quoted = [], []
    for _ in range(2):
        done = run(place, "other", sys.executable, "-c", SHOW, "word")
        assert done.returncode == 0, done.stderr
        argv, environment = json.loads(done.stdout)
        assert argv == ["-c", "word"]
        seen += [environment[name] for name in ("ETCD_AUTH_PASSWORD", "NATS_AUTH_PASSWORD")]
        quoted.append(environment["DYNAMO_PASSWORD"])
    file = place / "password"
    assert set(seen) == {file.read_text()}
    assert len(seen[0]) == 64
    # NATS reads a variable as a piece of its configuration, where 9723e576... is a bad number: one
    # of 33 passwords kept it from starting.
    assert set(quoted) == {f'"{seen[0]}"'}
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(place)) == ["password", "tmp"]


def test_etcd_has_its_password_before_it_has_an_address_and_never_in_its_environment(
    place: Path, tmp_path: Path
) -> None:
    program = etcd(tmp_path)
    done = run(place, "etcd", program, "http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr
    word = (place / "password").read_text()
    first, *asked, last = calls(place)
    assert "--listen-client-urls=unix://client:0" in first[0]
    assert "--listen-client-urls=http://127.0.0.1:1" in last[0]
    assert asked == [
        ["/v3/auth/user/add", {"name": "root", "password": word}],
        ["/v3/auth/role/add", {"name": "root"}],
        ["/v3/auth/user/grant", {"user": "root", "role": "root"}],
        ["/v3/auth/enable", {}],
    ]
    key = place / "token.key"
    assert key.stat().st_mode & 0o777 == 0o600
    for argv, environment in (first, last):
        # Tokens that outlive a restart: Dynamo never asks for another one.
        assert "--auth-token=jwt,priv-key=token.key,sign-method=HS256,ttl=87600h" in argv
        assert not [name for name in environment if "PASSWORD" in name]
        assert not [one for one in argv if word in one]
    # It has it now: the next start is one start.
    (place / "calls").unlink()
    assert run(place, "etcd", program, "http://127.0.0.1:1").returncode == 0
    assert len(calls(place)) == 1


def test_an_etcd_that_refuses_its_password_gets_no_address_and_begins_anew(
    place: Path, tmp_path: Path
) -> None:
    done = run(place, "etcd", etcd(tmp_path, refuses=True), "http://127.0.0.1:1")
    assert done.returncode != 0
    assert "etcd refuses enable: no" in done.stderr
    assert all("http://127.0.0.1:1" not in json.dumps(one) for one in calls(place))
    # What it has half of is removed, else mkdir of the stand-in would fail.
    done = run(place, "etcd", etcd(tmp_path), "http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr
