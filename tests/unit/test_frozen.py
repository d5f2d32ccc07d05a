"""Frozen dataclasses with shared methods behave as those of the standard library."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from vllm_ansible.frozen import frozen


@frozen
class Point:
    """Two numbers, and what goes with them."""

    x: int
    y: int = 2
    names: tuple[str, ...] = field(default_factory=tuple)


@frozen
class Other:
    """The same fields under another name."""

    x: int
    y: int = 2
    names: tuple[str, ...] = ()


def test_values_decide_what_is_equal() -> None:
    assert Point(1) == Point(1, 2)
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2


def test_nothing_can_be_changed() -> None:
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(FrozenInstanceError):
            setattr(point, name, 3)
    with pytest.raises(FrozenInstanceError):
        del point.x


def test_it_is_a_dataclass_in_all_else() -> None:
    assert replace(Point(1), y=5) == Point(1, 5)
    assert asdict(Point(1)) == {"x": 1, "y": 2, "names": ()}
    assert [one.name for one in fields(Point)] == ["x", "y", "names"]
    assert repr(Point(1)) == "Point(x=1, y=2, names=())"
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]  # wrong on purpose
