"""Where one launch starts several machines, all of them or none; no provider here does so yet."""

from __future__ import annotations

from vllm_ansible.provision.fleet import (
    BOOTING,
    READY,
    Complete,
    Launch,
    Machine,
    Offer,
    Pending,
    Step,
    TooDear,
    Wait,
    Wish,
    is_known,
    next_step,
)

OFFER = Offer("h100x8", "east-a", 5500, available=True)
NOW = 1000.0


def machine(slot: int, status: str = READY, launch: str = "one") -> Machine:
    return Machine(f"m{slot}", slot, status, "h100x8", "east-a", 5500, launch, since=900.0)


def step(*machines: Machine, pending: Pending | None = None, **more: int) -> Step:
    wish = Wish(3, 2, together=True, **more)
    return next_step(wish, machines, [OFFER], pending, {}, NOW)


def test_all_that_serve_are_launched_at_once_and_spares_after_them() -> None:
    assert step() == Launch((0, 1, 2), OFFER)
    assert step(machine(0), machine(2)) == Launch((1,), OFFER)
    assert step(*(machine(slot, BOOTING) for slot in range(3))) == Launch((3, 4), OFFER)
    assert isinstance(step(*(machine(slot) for slot in range(5))), Complete)


def test_without_it_slots_are_launched_one_by_one() -> None:
    assert next_step(Wish(3), [], [OFFER], None, {}, NOW) == Launch((0,), OFFER)


def test_a_limit_of_price_counts_spares_too() -> None:
    assert step(max_cents_per_hour=5 * 5500 - 1) == TooDear(5, 5 * 5500, 5 * 5500 - 1)


def test_a_launch_of_which_a_part_is_listed_is_waited_for() -> None:
    """A list lags behind: the rest of it launched again would be machines that nobody wants."""
    pending = Pending(0, "one", NOW, "m0", count=3)
    part = [machine(0, BOOTING), machine(2, BOOTING)]
    assert not is_known(pending, part)
    assert isinstance(step(*part, pending=pending), Wait)
    assert is_known(pending, [*part, machine(1, BOOTING)])
