"""What idles of rented machines, with its price, in what people are told."""

from __future__ import annotations

from vllm_ansible.provision.convergence import Outcome
from vllm_ansible.provision.fleet import Complete, Launch, Machine, Offer, Wait, Wish
from vllm_ansible.provision.provider import provider
from vllm_ansible.provision.words import announced, told

CLOUD = provider("lambda")
WISH = Wish(count=2, spares=1)
OFFER = Offer("gpu_8x_h100", "us-east-3", 2000, True)
IDLE = {"idle": 12, "of": 16}
PRICE = "$30.00/h of $60.00/h idle: 12 of 16 accelerators have no engine"


def machine(slot: int) -> Machine:
    kind, region, cents = "gpu_8x_h100", "us-east-3", 2000
    return Machine(f"i-{slot}", slot, "active", kind, region, cents, f"l{slot}", 0.0)


def test_what_is_rented_names_the_price_of_what_idles() -> None:
    """12 of the 16 devices of two machines at $20, the spare beside."""
    outcome = Outcome(machines=[machine(slot) for slot in range(3)], cents_per_hour=6000)
    summary = told(CLOUD, outcome, WISH, None, 0.0, idle=IDLE)["evidence"]["summary"]
    assert f"; {PRICE}" in summary
    for none in ({}, {"idle": 0, "of": 16}, {"idle": 0, "of": 0}):
        assert "idle" not in told(CLOUD, outcome, WISH, None, 0.0, idle=none)["evidence"]["summary"]


def test_what_would_be_rented_names_the_price_of_what_would_idle() -> None:
    step = Launch((0, 1), OFFER)
    summary = announced(CLOUD, [], step, WISH, {}, IDLE)["evidence"]["summary"]
    assert summary == f"3 of 3 would be rented: gpu_8x_h100 in us-east-3, $60.00/h; {PRICE}"


def test_machines_that_are_there_count_too() -> None:
    there = [machine(0), machine(1), machine(2)]
    done = announced(CLOUD, there, Complete(tuple(there)), WISH, {}, IDLE)
    assert done["evidence"]["summary"].endswith(f"every slot has a machine; {PRICE}")
    part = announced(CLOUD, there[:1], Launch((1,), OFFER), WISH, {}, IDLE)
    assert part["evidence"]["summary"].endswith(f"in us-east-3, $40.00/h; {PRICE}")
    waits = announced(CLOUD, [], Wait("capacity"), WISH, {}, IDLE)
    assert "$" not in waits["evidence"]["summary"]
