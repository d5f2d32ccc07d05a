"""While digests are found, the program says for what it waits: silence is taken for a hang."""

from __future__ import annotations

import pytest

from ...emulators.object_storage import ObjectStorage
from .conftest import SHARDS, Program, Ran
from .objects import BUCKET, asks, key


@pytest.fixture(autouse=True)
def nothing_is_recorded(storage: ObjectStorage) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))


def words(ran: Ran) -> list[str]:
    assert ran.result
    return [said[3] for said in ran.said("progress")]


def waits(ran: Ran) -> set[str]:
    """Return how the store's wish to be left alone was told."""
    return {said for said in words(ran) if said.startswith("object storage asks to wait")}


def test_a_listing_says_how_long_it_waits(storage: ObjectStorage, program: Program) -> None:
    storage.refuse(503, "SlowDown", path="list-type", Retry_After="6")
    ran = asks(program)
    assert len(waits(ran)) >= 3, "every second another text"
    assert [10, None, "objects", "listing"] in ran.said("progress")


def test_asking_for_digests_says_how_long_it_waits(
    storage: ObjectStorage, program: Program
) -> None:
    storage.refuse(503, "SlowDown", path=SHARDS[0], Retry_After="6")
    ran = asks(program, reads=False)
    assert len(waits(ran)) >= 3
    last = ran.said("progress")[-1]
    assert last == [7, 7, "objects", "asking for their digests, repeated requests: 1"]


def test_reading_says_how_long_it_waits(storage: ObjectStorage, program: Program) -> None:
    def cut() -> bool:
        storage.refuse(503, "SlowDown", path=SHARDS[0], Retry_After="6")
        return True

    storage.when(key(SHARDS[0]), 1000, cut)
    assert len(waits(asks(program))) >= 3


def test_what_times_out_several_times_moves_each_time(
    storage: ObjectStorage, program: Program
) -> None:
    for _ in range(4):
        storage.stall(key(SHARDS[0]), after=0, seconds=60)
    told = words(asks(program, stall_seconds=0.5))
    for times in (1, 2, 3, 4):
        assert any(said.endswith(f"repeated requests: {times}") for said in told)
