"""What the watch reads of HAProxy's counts, and what it makes of them."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).parents[3] / "roles/router/files/watch"
HEAD = b"# pxname,svname,scur,stot,last_agt\n"


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PROGRAM))
    for name in ("traffic", "sessions"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import traffic  # type: ignore[import-not-found]

    return traffic


@pytest.fixture
def haproxy(tmp_path: Path) -> Callable[[bytes], str]:
    """Stand in for HAProxy's socket, for one question."""

    def answering(text: bytes) -> str:
        path = str(tmp_path / "s")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen()

        def answer() -> None:
            with server, server.accept()[0] as asked:
                asked.recv(100)
                asked.sendall(text)

        threading.Thread(target=answer, daemon=True).start()
        return path

    return answering


def test_a_character_that_haproxy_has_cut_hides_no_count(
    traffic: ModuleType, haproxy: Callable[[bytes], str]
) -> None:
    cut = "模型".encode()[:-1]
    path = haproxy(HEAD + b"ranks,rank-0,2,7," + cut + b"\nother,x,1,1,\n")
    assert traffic.sessions(path) == {"rank-0": (2, 7)}


@pytest.mark.parametrize("text", [b"", b"# pxname\nranks\n", HEAD + b"ranks,rank-0,a,b,\n"])
def test_an_answer_that_is_none_is_no_silence_of_clients(
    traffic: ModuleType, haproxy: Callable[[bytes], str], text: bytes
) -> None:
    assert not traffic.sessions(haproxy(text))


def test_it_is_quiet_after_the_time_that_is_told_and_never_for_none(
    traffic: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(traffic.time, "monotonic", lambda: now)
    rests, never = traffic.Traffic("", 60), traffic.Traffic("", 0)
    now = 159.0
    assert not rests.quiet
    now = 161.0
    assert rests.quiet
    assert not never.quiet
