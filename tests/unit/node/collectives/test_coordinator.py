"""The coordinator lets in who has the key, and names the rank that is missing, dead or stuck."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import pytest

from vllm_ansible.node.cluster.door import Door
from vllm_ansible.node.collectives import coordinator
from vllm_ansible.node.collectives.channel import Channel, ChannelError, connect, key_of
from vllm_ansible.node.collectives.coordinator import CollectiveError, Coordinator

KEY = key_of(b"a secret of this cluster\n")
# Longer than any machine takes for what is to happen.
LONG = 120.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture(autouse=True)
def patient_doors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send nobody away who says nothing: who waits for such a one waits for ever."""
    monkeypatch.setattr(coordinator, "Door", partial(Door, seconds=3600.0))


def over_once(monkeypatch: pytest.MonkeyPatch, reached: Callable[[], object]) -> None:
    """Let the coordinator's time be over once something is true, and no earlier."""
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + (2 * LONG if reached() else 0))
    monkeypatch.setattr(coordinator, "time", later)


def place(listener: socket.socket) -> tuple[str, int]:
    address: tuple[str, int] = listener.getsockname()
    return address


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


class Rank:
    """A rank that answers as a test wants."""

    def __init__(self, listener: socket.socket, host: str, local: int = 0) -> None:
        self.hello = {"host": host, "local_rank": local}
        self.listener = listener
        self.channel: Channel | None = None

    def come(self) -> Rank:
        in_thread(self._come)
        return self

    def _come(self) -> None:
        self.channel = connect(place(self.listener), KEY, "127.0.0.1")
        self.channel.send(self.hello)

    def answer(self, message: dict[str, object]) -> None:
        def act() -> None:
            assert self.channel
            if self.channel.receive(LONG):
                self.channel.send(message)

        in_thread(act)


def gathered(listener: socket.socket, silence: float = LONG) -> tuple[Coordinator, list[Rank]]:
    lead = Coordinator({"gh-01": 1, "gh-02": 1}, silence)
    ranks = [Rank(listener, host).come() for host in ("gh-02", "gh-01")]
    lead.gather(listener, KEY, LONG)
    return lead, list(reversed(ranks))


def test_messages_arrive_whole(listener: socket.socket) -> None:
    lead, ranks = gathered(listener)
    for rank in ranks:
        rank.answer({"host": rank.hello["host"], "text": "x" * 100_000})
    answers = lead.ask_all(do="join")
    assert [answers[rank]["host"] for rank in (0, 1)] == ["gh-01", "gh-02"]


@pytest.mark.parametrize("key", [b"", b"another secret"])
def test_without_the_key_nobody_comes_in(
    listener: socket.socket, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_up: list[str] = []

    def stranger() -> None:
        try:
            connect(place(listener), key_of(key), "127.0.0.1")
        except ChannelError as error:
            hung_up.append(str(error))

    over_once(monkeypatch, lambda: hung_up)
    in_thread(stranger)
    with pytest.raises(CollectiveError) as caught:
        Coordinator({"gh-01": 1}).gather(listener, KEY, LONG)
    assert "127.0.0.1: it does not have this cluster's key (1 times)" in str(
        caught.value.details["found"]
    )
    assert hung_up == ["it hung up"]


def test_a_coordinator_without_the_key_is_not_believed(listener: socket.socket) -> None:
    def impostor() -> None:
        channel = Channel(listener.accept()[0])
        channel.send({"nonce": "00"})
        channel.receive(LONG)
        channel.send({"proof": "11"})

    in_thread(impostor)
    with pytest.raises(ChannelError, match="key"):
        connect(place(listener), KEY, "127.0.0.1")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"\xff\xfe\n",
        b"[" * 8000 + b"\n",
        b"9" * 8000 + b"\n",
        b'{"proof": "\xc3\xa9"}\n',
        b'{"nonce": "\\ud800", "proof": "\\ud800"}\n',
        b'{"nonce": [], "proof": {}}\n',
        b"x" * 10000,
    ],
)
def test_nothing_that_is_sent_ends_the_coordinator(listener: socket.socket, sent: bytes) -> None:
    lead = Coordinator({"gh-01": 1})
    with socket.create_connection(place(listener)) as stranger:
        stranger.sendall(sent)
        Rank(listener, "gh-01").come()
        lead.gather(listener, KEY, LONG)
    assert lead.hellos[0]["host"] == "gh-01"
    lead.close()


def test_who_says_nothing_holds_up_nobody(listener: socket.socket) -> None:
    lead = Coordinator({"gh-01": 1, "gh-02": 1})
    with ExitStack() as strangers:
        for _ in range(20):
            strangers.enter_context(socket.create_connection(place(listener)))
        for host in ("gh-01", "gh-02"):
            Rank(listener, host).come()
        lead.gather(listener, KEY, LONG)
    lead.close()


def test_a_rank_with_a_long_hello_comes_in(listener: socket.socket) -> None:
    lead, rank = Coordinator({"gh-01": 1}), Rank(listener, "gh-01")
    rank.hello["links"] = "x" * 100_000
    rank.come()
    lead.gather(listener, KEY, LONG)
    assert len(lead.hellos[0]["links"]) == 100_000
    lead.close()


def test_missing_ranks_are_named(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    lead = Coordinator({"gh-01": 1, "gh-02": 2})
    over_once(monkeypatch, lambda: len(lead.channels) == 2)
    Rank(listener, "gh-01").come()
    Rank(listener, "gh-02", 1).come()
    with pytest.raises(CollectiveError) as caught:
        lead.gather(listener, KEY, LONG)
    assert caught.value.details["found"] == "no connection from rank 0 of gh-02"
    assert caught.value.details["where"] == "gh-02"
    lead.close()


def test_a_rank_that_cannot_begin_ends_the_wait_with_its_words(listener: socket.socket) -> None:
    lead = Coordinator({"gh-01": 1, "gh-02": 1})
    rank = Rank(listener, "gh-02")
    rank.hello["error"] = "ModuleNotFoundError: No module named 'torch_gcu'"
    rank.come()
    with pytest.raises(CollectiveError, match="rank 0 of gh-02 failed to begin: Module") as caught:
        lead.gather(listener, KEY, LONG)
    assert caught.value.details["where"] == "gh-02"
    lead.close()


def test_a_rank_that_dies_is_named(listener: socket.socket) -> None:
    lead, ranks = gathered(listener)
    assert ranks[1].channel
    ranks[0].answer({})
    ranks[1].channel.close()
    with pytest.raises(CollectiveError, match="rank 0 of gh-02 ended in the middle of pair"):
        lead.ask_all(do="pair")


def test_a_rank_that_dies_is_named_before_those_that_fail_by_it(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, ranks = gathered(listener)
    dead, look = ranks[1].channel, lead._hung_up
    assert dead

    def looked(others: Sequence[int]) -> Sequence[int]:
        # Once the coordinator has read what the other one says.
        threading.Timer(0.3, dead.close).start()
        return look(others)

    monkeypatch.setattr(lead, "_hung_up", looked)
    monkeypatch.setattr(coordinator, "END_SECONDS", LONG)
    ranks[0].answer({"error": "connection closed by peer"})
    with pytest.raises(CollectiveError, match="rank 0 of gh-02 ended in the middle") as caught:
        lead.ask_all(do="pair")
    assert "rank 0 of gh-01 failed: connection closed by peer" in caught.value.details["found"]


def test_a_rank_that_fails_is_named_with_its_words(listener: socket.socket) -> None:
    lead, ranks = gathered(listener)
    ranks[0].answer({})
    ranks[1].answer({"error": "RuntimeError: Gloo connectFullMesh failed"})
    with pytest.raises(CollectiveError) as caught:
        lead.ask_all(do="join")
    assert caught.value.details["where"] == "gh-02"
    assert "connectFullMesh" in caught.value.details["found"]


def test_ranks_that_are_stuck_are_named(listener: socket.socket) -> None:
    lead, ranks = gathered(listener, silence=0.3)
    # Its answer is there before anybody waits.
    assert ranks[0].channel
    ranks[0].channel.send({"done": True})
    with pytest.raises(
        CollectiveError, match=r"no rank has answered for 0\.3 s in collective"
    ) as c:
        lead.ask_all(do="collective")
    assert c.value.details["where"] == "gh-02"
