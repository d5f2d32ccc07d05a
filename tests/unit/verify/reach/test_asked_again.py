"""Who is given no time, and what is lost on the way, is no fault of a key, a port or a link."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from typing import Any

import pytest

from tests.ports import free_ports
from vllm_ansible.node.reach import connect, wire
from vllm_ansible.node.reach.exchange import Session
from vllm_ansible.node.reach.probe import probe
from vllm_ansible.node.reach.responder import Responder


def test_a_peer_that_was_given_no_time_while_it_was_asked_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = free_ports(3)
    responder = Responder(b"key", "127.0.0.1", ports)
    select, patience, stopped = responder.selector.select, 3.0, []

    def late(timeout: float | None = None) -> Any:
        ready = select(timeout)
        # Once: it has met somebody, who asks for its clock now.
        if responder.sessions and not stopped:
            stopped.append(True)
            time.sleep(1.5 * patience)
            ready = select(0)
        return ready

    monkeypatch.setattr(responder.selector, "select", late)
    # It ends with this process.
    threading.Thread(target=responder.serve, args=(600,), daemon=True).start()
    peer = {"address": "127.0.0.1", "ports": [[port, port] for port in ports], "answers": ports}
    found = probe({"peer": peer}, b"key", patience)["peer"]
    assert stopped and "silent" not in found, found
    assert found["loss"]["sent"] == 400


def test_who_was_given_no_time_himself_looks_again_before_he_calls_a_port_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(selectors.DefaultSelector):
        """One whose process is given no time just after it has looked, in each try."""

        looked = False

        def select(self, timeout: float | None = None) -> Any:
            ready = super().select(timeout) if self.looked else []
            if not self.looked:
                self.looked = True
                time.sleep(0.4)
            return ready

    monkeypatch.setattr(connect.selectors, "DefaultSelector", Late)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        assert connect.connect_all([place], 0.2) == {place: "connected"}


def test_a_port_whose_packets_were_lost_twice_is_not_called_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[list[connect.Target]] = []

    def lossy(targets: list[connect.Target], _: float) -> dict[connect.Target, str]:
        tries.append(targets)
        return {one: "connected" if one[1] <= len(tries) else "timed_out" for one in targets}

    monkeypatch.setattr(connect, "_round", lossy)
    a, b, c, d = (("h", port) for port in (1, 2, 3, 4))
    found = connect.connect_all([a, b, c, d], 3.0)
    assert found == {**dict.fromkeys((a, b, c), "connected"), d: "timed_out"}
    assert tries == [[a, b, c, d], [b, c, d], [c, d]]


@pytest.mark.parametrize(("asked_for", "counts_for"), [(0.2, 15.0), (30.0, 30.0)])
def test_a_peer_has_longer_to_count_than_to_answer(asked_for: float, counts_for: float) -> None:
    near, far = socket.socketpair()
    with near, far:

        def count() -> None:
            far.recv(256)
            time.sleep(2 * 0.2)
            far.sendall(wire.COUNTS.pack(400, 0))

        threading.Thread(target=count, daemon=True).start()
        near.settimeout(asked_for)
        assert Session(near, "127.0.0.1", b"", 0).counts() == (400, 0)
        assert near.gettimeout() == counts_for
