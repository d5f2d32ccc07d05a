"""The search names what is slow, in few rounds, and nothing when nothing is."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest

from vllm_ansible.node.collectives.culprit import Pair, find
from vllm_ansible.node.collectives.pairing import rounds
from vllm_ansible.node.collectives.search import search

SIZES = range(2, 17)


def names(count: int) -> list[str]:
    return [f"gh-{number:02}" for number in range(count)]


def measured(
    rate: Callable[[Pair], float], noise: float = 0.0, seed: int = 0
) -> Callable[[Sequence[Pair], int], dict[Pair, float]]:
    """Measure pairs whose rate is known, with noise either way."""
    chance = random.Random(seed)  # noqa: S311 repeatable, no secret
    return lambda pairs, _: {
        pair: rate(pair) * chance.uniform(1 - noise, 1 + noise) for pair in pairs
    }


@pytest.mark.parametrize("count", range(1, 65))
def test_in_its_rounds_every_pair_meets_once(count: int) -> None:
    units = names(count)
    found = rounds(units)
    for pairs in found:
        met = [unit for pair in pairs for unit in pair]
        assert len(met) == len(set(met)), "a unit is in two pairs at once"
    seen = [pair for pairs in found for pair in pairs]
    assert sorted(seen) == sorted(itertools.combinations(units, 2))
    assert len(found) == (0 if count == 1 else count - 1 if count % 2 == 0 else count)


@pytest.mark.parametrize("count", SIZES)
def test_healthy_links_with_noise_raise_no_alarm(count: int) -> None:
    for seed in range(50):
        found = search(names(count), measured(lambda pair: 10.0, 0.2, seed))
        assert found.culprit.kind == "none"
        assert len(found.rates) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [size for size in SIZES if size > 2])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_slow_node_is_named_within_log2_plus_3_rounds(count: int, noise: float) -> None:
    for seed, slow in enumerate(names(count)):
        rate = measured(lambda pair, slow=slow: 3.3 if slow in pair else 10.0, noise, seed)
        found = search(names(count), rate)
        assert (found.culprit.kind, found.culprit.members) == ("node", (slow,))
        assert found.culprit.conclusive
        assert found.rounds <= math.log2(count) + 3


@pytest.mark.parametrize("count", [size for size in SIZES if size > 2])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_slow_pair_is_named_when_it_has_met(count: int, noise: float) -> None:
    for seed, slow in enumerate(itertools.combinations(names(count), 2)):
        rate = measured(lambda pair, slow=slow: 4.0 if pair == slow else 10.0, noise, seed)
        found = search(names(count), rate)
        assert (found.culprit.kind, found.culprit.members) == ("pair", slow)
        assert found.rounds <= len(rounds(names(count)))


@pytest.mark.parametrize("count", [size for size in SIZES if size > 3])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_a_slow_side_is_named_within_log2_plus_3_rounds(count: int, noise: float) -> None:
    chance = random.Random(count)  # noqa: S311 repeatable, no secret
    for seed in range(30):
        side = set(chance.sample(names(count), chance.randint(2, count // 2)))
        rate = measured(
            lambda pair, side=side: 10.0 if len(side & set(pair)) != 1 else 3.0, noise, seed
        )
        found = search(names(count), rate)
        assert found.culprit.kind == "side", (side, found)
        assert side in [set(members) for members in found.culprit.sides]
        assert found.rounds <= math.log2(count) + 3, (side, found)


@pytest.mark.parametrize("count", [size for size in SIZES if size > 4])
def test_two_slow_nodes_are_both_named(count: int) -> None:
    for slow in itertools.combinations(names(count), 2):
        rate = measured(lambda pair, slow=slow: 3.0 if set(slow) & set(pair) else 10.0)
        found = search(names(count), rate)
        assert (found.culprit.kind, found.culprit.members) == ("node", slow)


def test_two_slow_pairs_of_one_round_are_several() -> None:
    slow = rounds(names(8))[3][:2]
    found = search(names(8), measured(lambda pair: 4.0 if pair in slow else 10.0))
    assert found.culprit.kind == "several"
    assert set(found.culprit.slow) == set(slow)
    assert found.rounds == 7


def test_a_bad_moment_is_no_fault() -> None:
    worst = iter([1.0])
    found = search(names(8), measured(lambda pair: next(worst, 10.0)))
    assert found.culprit.kind == "none"
    assert len(found.noise) == 1


def test_a_pair_that_needs_a_longer_look_is_given_one() -> None:
    slow = ("gh-02", "gh-05")

    def rate(pairs: Sequence[Pair], before: int) -> dict[Pair, float]:
        return {pair: 4.0 + 3.0 * before if pair == slow else 10.0 for pair in pairs}

    found = search(names(8), rate)
    assert found.culprit.kind == "none"
    assert (found.repeated, found.noise) == ([slow], [slow])


def test_two_hosts_are_judged_by_the_rate_they_must_have() -> None:
    assert search(names(2), measured(lambda pair: 4.0)).culprit.kind == "none"
    found = search(names(2), measured(lambda pair: 4.0), least=10.0)
    assert (found.culprit.kind, found.culprit.members) == ("pair", ("gh-00", "gh-01"))


def test_a_pair_that_carries_nothing_is_slow() -> None:
    found = find({("a", "b"): 0.0, ("c", "d"): 10.0, ("a", "c"): 10.0, ("b", "d"): 10.0})
    assert (found.kind, found.members) == ("pair", ("a", "b"))
