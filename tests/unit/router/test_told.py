"""What HAProxy's own words mean of a rank, as a socket that says them tells."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import router
from vllm_ansible.node.failure import Failure

TITLES = "# pxname,svname,scur,status,check_status,agent_status,last_chk,last_agt,"


@pytest.fixture
def path() -> Iterator[Path]:
    # Sockets have short paths only.
    with tempfile.TemporaryDirectory(prefix="rt") as directory:
        yield Path(directory) / "admin.sock"


def told(path: Path, status: str, check: str, agent: str) -> dict[str, Any]:
    """Return what is made of one rank that HAProxy tells of so."""
    row = f"ranks,rank-0,0,{status},{check},{agent},,,"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            asked, _ = server.accept()
            with asked:
                asked.recv(100)
                asked.sendall(f"{TITLES}\n{row}\n\n".encode())

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        (found,) = router.ranks(str(path))
        thread.join()
    return found


@pytest.mark.parametrize("running", [("* ", ""), ("", "* "), ("* ", "* ")])
def test_a_check_that_runs_just_now_takes_nothing_of_the_last_ones_word(
    path: Path, running: tuple[str, str]
) -> None:
    check, agent = running
    assert told(path, "UP", f"{check}L7OK", f"{agent}L7OK")["proven"]


@pytest.mark.parametrize(
    ("status", "check", "agent"),
    [
        ("UP", "* L4CON", "L7OK"),
        ("UP", "L7OK", "* L7STS"),
        ("UP", "* L7OK", ""),
        ("DOWN 1/2", "* L7OK", "* L7OK"),
    ],
)
def test_one_check_alone_proves_nothing(path: Path, status: str, check: str, agent: str) -> None:
    assert not told(path, status, check, agent)["proven"]


# In a process of its own: what asks is a copy of this one, with all that it has open.
SERVES = """
import os, select, socket, sys
path, accepts = sys.argv[1], sys.argv[2] == "True"
for turn in range(2):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen()
        os.rename(f"{path}.new", path)
        select.select([server], [], [])
        if turn == 0 and not accepts:
            continue
        asked, _ = server.accept()
        with asked:
            select.select([asked], [], [])
            if turn:
                print(asked.recv(100), flush=True)
                asked.sendall(b"done\\n")
"""


@pytest.mark.parametrize("accepts", [True, False])
def test_a_command_that_was_never_read_is_given_again(path: Path, accepts: bool) -> None:
    """As by a process that another one replaces just then."""
    command = [sys.executable, "-c", SERVES, str(path), str(accepts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = ""
            while not said:
                try:
                    said = router.ask(str(path), "set server")
                except Failure as failure:  # nobody listens, which says something else
                    kinds = (errno.ECONNREFUSED, errno.ENOENT)
                    assert failure.details["found"] in map(os.strerror, kinds)
            assert said == "done\n"
            assert server.communicate()[0] == "b'set server\\n'\n"
        finally:
            server.kill()
