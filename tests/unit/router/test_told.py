"""What HAProxy's own words mean of a rank, as a socket that says them tells."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import router

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
