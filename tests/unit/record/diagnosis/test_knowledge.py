"""What is known of a kind of failure is complete, and can be said without a fact."""

from __future__ import annotations

from functools import cache

import pytest

from tests.unit.verify.preflight.conftest import cluster
from vllm_ansible.record.diagnosis import condition
from vllm_ansible.record.diagnosis.derived import derived
from vllm_ansible.record.diagnosis.facts import Fact
from vllm_ansible.record.diagnosis.knowledge import Cause, kinds
from vllm_ansible.record.diagnosis.log_facts import _COMPILED, _COMPILED_FLAGS
from vllm_ansible.record.diagnosis.match import signatures
from vllm_ansible.verify.preflight.host_facts import facts as host_facts

CAUSES = {
    f"{kind.id}/{cause.id}": cause
    for kind in {one.id: one for one in kinds().values()}.values()
    for cause in kind.causes
}


@cache
def known_names() -> set[str]:
    """Return every fact that something in the project reads from a log or a host."""
    healthy = cluster()
    names = {name for name, *_ in (*_COMPILED, *_COMPILED_FLAGS)}
    for host in healthy.hosts:
        names |= set(host_facts(healthy.looks[host], healthy.hosts[host]))
    given = {name: Fact(value, "test") for name, value in FOR_DERIVED.items()}
    # Of a host whose driver does not answer; of the cluster as a whole.
    return names | set(derived(given)) | {"host", "driver_error", *OF_THE_CLUSTER}


FOR_DERIVED = {
    "torch_cuda": "12.8",
    "architectures": ("8.0", "9.0"),
    "heads": 52,
    "shard": 100,
    "shard_unit": 64,
    "tensor_parallel": 64,
    "package_paths": True,
}
OF_THE_CLUSTER = ("blocked_ports", "data_plane_addresses")


def test_every_kind_is_of_signatures_that_there_are() -> None:
    ids = {one.id for one in signatures()}
    assert [name for name in kinds() if name not in ids] == []
    assert len({kind.id for kind in kinds().values()}) >= 20


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_a_cause_can_be_said_without_any_fact_but_the_host(cause: Cause) -> None:
    nothing = {"host": Fact("gpu-1", "test")}
    if cause.needs_proof:
        assert cause.confirmed_by
        # Whatever proves it may be named.
        proved = set.intersection(*(set(one.when) for one in cause.confirmed_by))
        nothing.update((name, Fact("1", "test")) for name in proved)
    for texts in (cause.cause, cause.fix, cause.check):
        assert texts and condition.filled(texts, nothing).strip()


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES)
def test_it_asks_only_for_facts_that_somebody_reads(cause: Cause) -> None:
    there = known_names()
    asked = set()
    for one in (*cause.confirmed_by, *cause.excluded_by):
        asked |= set(one.when)
        for test in one.when.values():
            if isinstance(test, str) and not test.startswith("~"):
                asked |= condition.names_in(test)
        asked |= set().union(*(condition.names_in(text) for text in one.why))
    for text in (*cause.cause, *cause.fix, *cause.check):
        asked |= condition.names_in(text)
    assert asked - there == set()


@pytest.mark.parametrize(
    ("value", "test", "expected"),
    [
        ("12.8", ">= 12.8", True),
        ("12.4", ">= 12.8", False),
        ("13.0", "< 12.8", False),
        ("9.0", "< 10.0", True),
        ("580.159.04", ">= 580.65.06", True),
        (0, 0, True),
        (3, "> 0", True),
        ("none", "none", True),
        ("eth0", "== eth0", True),
        ("eth0", "!= {other}", True),
        ("eth0", "!= {unknown}", False),
        (("a", "b"), "has b", True),
        (("a", "b"), "lacks b", False),
        ("x", "> 1", False),
        (True, True, True),
        (True, False, False),
        ("/usr/bin/cc", "~ ^/", True),
        ("x", "known", True),
    ],
)
def test_conditions(value: object, test: object, expected: bool) -> None:
    facts = {"it": Fact(value, "test"), "other": Fact("ib0", "test")}  # type: ignore[arg-type]
    assert condition.holds({"it": test}, facts) is expected


def test_a_fact_that_nobody_knows_neither_confirms_nor_excludes() -> None:
    assert not condition.holds({"it": "!= 1"}, {})
    assert not condition.holds({"it": "known"}, {})


def test_the_most_exact_sentence_that_can_be_said_is_said() -> None:
    texts = ["{a} and {b}", "only {a}", "neither"]
    assert condition.filled(texts, {"a": Fact(1, "t"), "b": Fact(True, "t")}) == "1 and yes"
    assert condition.filled(texts, {"a": Fact(("x", "y"), "t")}) == "only x, y"
    assert condition.filled(texts, {}) == "neither"
    with pytest.raises(condition.UnknownFact):
        condition.filled(texts[:2], {})
