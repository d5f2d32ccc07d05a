"""A responder that was given no time while it was asked is asked again; the key is not at fault."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.ports import free_ports
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
