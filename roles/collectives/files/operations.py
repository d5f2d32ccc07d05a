"""The collective operations as nccl-tests runs them, each with a check of every element it made.

Every part of a tensor says who it comes from and who it is for, in numbers that float32 adds
without error. Sizes are bytes of the larger side, as in nccl-tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ELEMENT = 4


@dataclass(frozen=True)
class Prepared:
    """One operation: what runs it once, what it needs done before, and its wrong elements after.

    `before` is no part of what is timed.
    """

    act: Callable[[], Any]
    wrong: Callable[[], int]
    before: Callable[[], Any] = lambda: None


@dataclass(frozen=True)
class Place:
    """One rank's place in a group."""

    torch: Any
    device: Any
    group: Any
    ranks: list[int]
    rank: int

    @property
    def count(self) -> int:
        """Return how many ranks the group has."""
        return len(self.ranks)

    @property
    def index(self) -> int:
        """Return this rank's number in the group."""
        return self.ranks.index(self.rank)

    def part(self, size: int) -> int:
        """Return the elements of one rank's part of so many bytes."""
        return max(1, size // ELEMENT // self.count)

    def tensor(self, elements: int, value: float = 0.0) -> Any:
        """Return a tensor of one value."""
        return self.torch.full(
            (elements,), float(value), dtype=self.torch.float32, device=self.device
        )

    def parts(self, size: int, value: Callable[[int], float]) -> Any:
        """Return a tensor with a part for each rank of the group."""
        filled = self.tensor(self.part(size) * self.count)
        for number, part in enumerate(filled.chunk(self.count)):
            part.fill_(value(number))
        return filled

    @property
    def dist(self) -> Any:
        """Return torch.distributed."""
        return self.torch.distributed


def _wrong(found: Any, expected: Any) -> Callable[[], int]:
    return lambda: int((found != expected).sum().item())


def _triangle(place: Place) -> int:
    return place.count * (place.count + 1) // 2


def all_reduce(place: Place, size: int) -> Prepared:
    """Sum what all ranks have."""
    given = place.parts(size, lambda part: place.index + 1 + part)
    found = given.clone()
    expected = place.parts(size, lambda part: _triangle(place) + place.count * part)

    def act() -> None:
        place.dist.all_reduce(found, group=place.group)

    return Prepared(act, _wrong(found, expected), lambda: found.copy_(given))


def all_gather(place: Place, size: int) -> Prepared:
    """Give every rank the part of each."""
    given = place.tensor(place.part(size), place.index + 1)
    found = place.tensor(given.numel() * place.count)
    expected = place.parts(size, lambda part: part + 1)

    def act() -> None:
        place.dist.all_gather_into_tensor(found, given, group=place.group)

    return Prepared(act, _wrong(found, expected))


def reduce_scatter(place: Place, size: int) -> Prepared:
    """Sum what all ranks have, and give each rank its part."""
    given = place.parts(size, lambda part: place.index + 1 + part)
    found = place.tensor(place.part(size))
    expected = place.tensor(found.numel(), _triangle(place) + place.count * place.index)

    def act() -> None:
        place.dist.reduce_scatter_tensor(found, given, group=place.group)

    return Prepared(act, _wrong(found, expected))


def all_to_all(place: Place, size: int) -> Prepared:
    """Give every rank a part of its own from each."""
    given = place.parts(size, lambda part: place.index * place.count + part)
    found = place.tensor(given.numel(), -1)
    expected = place.parts(size, lambda part: part * place.count + place.index)

    def act() -> None:
        place.dist.all_to_all_single(found, given, group=place.group)

    return Prepared(act, _wrong(found, expected))


def broadcast(place: Place, size: int) -> Prepared:
    """Give every rank what the first one has."""
    found = place.parts(size, lambda part: part + 1 if place.index == 0 else -1)
    expected = place.parts(size, lambda part: part + 1)

    def act() -> None:
        place.dist.broadcast(found, place.ranks[0], group=place.group)

    return Prepared(act, _wrong(found, expected))


OPERATIONS: dict[str, Callable[[Place, int], Prepared]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
}
