"""The verdict names both ends, the ports, what they are for, and what to do."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.verify.reach.measured import Measured
from vllm_ansible.verify.reach.purposes import purposes, told
from vllm_ansible.verify.reach.verdict import CHECKS, Verdict, judge
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

HOSTS = ("a", "b", "c")
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
ENGINES = [
    {"name": "chat", "model": "package:smollm2-135m-instruct"},
    {"name": "code", "model": "package:smollm2-135m-instruct", "port": 9000},
]
KERNEL = 41000


def found(address: str, **more: Any) -> dict[str, Any]:
    loss = {"sent": 400, "arrived": 400, "returned": 400, "dropped_there": 0, "dropped_here": 0}
    return {
        "blocked": {},
        "source": address,
        "round_trip_us": 100.0,
        "round_trip_best_us": 90.0,
        "clock_offset_seconds": 0.0,
        "clock_uncertainty_seconds": 0.0001,
        "loss": loss,
        **more,
    }


class Network:
    """A healthy network whose parts a test breaks."""

    def __init__(self) -> None:
        self.purposes = purposes(ENGINES, 20000)
        self.probes = {pair: found(ADDRESSES[pair[0]]) for pair in permutations(HOSTS, 2)}
        self.answered = dict.fromkeys(HOSTS, True)
        planned = [[8000, 8000], [9000, 9000], [20000, 20011], [20020, 20111], [20120, 20199]]
        self.responders: dict[str, dict[str, Any]] = {
            name: {
                "address": ADDRESSES[name],
                "ports": [*planned, [KERNEL, KERNEL]],
                "answers": [KERNEL],
                "own": [],
                "strangers": [],
                "left": [],
                "kernel": [KERNEL],
            }
            for name in HOSTS
        }

    def block(self, target: str, kind: str, *ranges: list[int], by: str = "abc") -> None:
        for source in by:
            if source != target:
                self.probes[source, target]["blocked"] = {kind: list(ranges)}

    def verdict(self) -> Verdict:
        return judge(
            Measured(ADDRESSES, self.responders, self.answered, self.probes, self.purposes)
        )


def failing(verdict: Verdict) -> list[Row]:
    return [row for row in verdict.rows if row.verdict == FAIL]


def warnings(verdict: Verdict) -> list[Row]:
    return [row for row in verdict.rows if row.verdict == WARN]


@pytest.fixture
def network() -> Network:
    return Network()


def test_health_is_told_with_figures(network: Network) -> None:
    verdict = network.verdict()
    assert {row.check: row.verdict for row in verdict.rows} == dict.fromkeys(CHECKS, PASS)
    assert verdict.summary == (
        "3 hosts reach each other on every port (1122 connections), round trip 100 us, worst 100, "
        "loss at most 0 %, clocks within 0.0 ms"
    )
    assert verdict.values["pairs"] == 3
    assert verdict.values["ports"] == "8000, 9000, 20000-20011, 20020-20111, 20120-20199, 41000"
    assert verdict.values["round_trip_us"]["a"] == {"b": 100.0, "c": 100.0}


def test_a_port_that_a_firewall_drops_is_named_with_its_use(network: Network) -> None:
    network.block("b", "timed_out", [20000, 20000])
    (one,) = failing(network.verdict())
    assert one.what == "no other host reaches ports 20000 of b"
    assert one.expected == "TCP connects to ports 20000 (Ray gcs of engine chat)"
    ends = "from a (10.0.0.1), c (10.0.0.3) to b (10.0.0.2)"
    how = "connections time out: a firewall drops them, or the link is down"
    assert (one.found, one.where) == (f"{ends}: {how}", "b")
    assert "ufw allow from 10.0.0.1" in one.fix and "firewall-cmd" in one.fix


def test_refused_is_told_by_whether_the_responder_lived(network: Network) -> None:
    network.block("b", "refused", [20000, 20000])
    assert "a firewall rejects it" in failing(network.verdict())[0].found
    network.answered["b"] = False
    (ended,) = failing(network.verdict())
    assert ended.found.endswith(": refused: the responder on b had ended")
    assert "run the stage again" in ended.fix


def test_our_own_process_that_listens_elsewhere_is_told(network: Network) -> None:
    network.responders["b"]["own"] = [20000]
    network.block("b", "refused", [20000, 20000])
    assert "our own process has the port" in failing(network.verdict())[0].found


def test_two_ways_of_failing_are_told_with_their_ports(network: Network) -> None:
    network.probes["a", "b"]["blocked"] = {
        "timed_out": [[20020, 20099]],
        "forbidden": [[8000, 8000]],
    }
    (one,) = failing(network.verdict())
    assert one.what == "a does not reach ports 8000, 20020-20099 of b"
    assert "(ports 20020-20099)" in one.found and "forbids it (ports 8000)" in one.found


def test_a_port_of_a_stranger_is_told_once_and_not_as_a_firewall(network: Network) -> None:
    who = "nginx (process 42 of root)"
    network.responders["b"]["strangers"] = [{"port": 8000, "pid": 42, "who": who}]
    network.block("b", "refused", [8000, 8000])
    (one,) = failing(network.verdict())
    assert one.what == f"ports 8000 of b are taken by {who}"
    assert "`ps -fp 42`" in one.fix
    assert one.expected == "free ports for the API of engine chat"


def test_a_peer_with_another_key_is_named(network: Network) -> None:
    for pair in (("a", "b"), ("b", "a"), ("c", "b"), ("b", "c")):
        network.probes[pair] = {"blocked": {}, "silent": "it closed the connection"}
    verdict = network.verdict()
    (one,) = failing(verdict)
    assert one.what.startswith("b and the others (a, c) do not know each other")
    assert [row.what for row in warnings(verdict)] == ["the clock of b was not measured"]
    assert one.where == "b"


def test_a_peer_that_is_silent_because_it_is_blocked_is_told_once(network: Network) -> None:
    everything = network.responders["b"]["ports"]
    for source in "ac":
        blocked = {"timed_out": everything}
        network.probes[source, "b"] = {"blocked": blocked, "silent": "no port can be reached"}
    assert [one.check for one in failing(network.verdict())] == ["reach_ports"]


def test_loss_is_told_with_its_directions(network: Network) -> None:
    network.probes["a", "b"]["loss"].update(arrived=380, returned=380)
    (one,) = failing(network.verdict())
    assert one.what == "the path between a and b loses up to 2.5 % of small datagrams"
    assert one.found == "a -> b 2.5 % (20 of 800)"


def test_a_clock_that_is_wrong_is_told_with_how_exactly_it_is_known(network: Network) -> None:
    for name in "ab":
        network.probes[name, "c"]["clock_offset_seconds"] = -30.0
        network.probes["c", name]["clock_offset_seconds"] = 30.0
    (one,) = failing(network.verdict())
    assert one.what == "the clock of c is not that of the other hosts"
    assert one.found == "c -30.000 s (+- 0.0001 s)"
    assert "timedatectl set-ntp true" in one.fix


def test_two_halves_with_two_times_are_both_named(network: Network) -> None:
    network.probes = {
        ("a", "b"): found("10.0.0.1", clock_offset_seconds=3.0),
        ("b", "a"): found("10.0.0.2", clock_offset_seconds=-3.0),
    }
    (one,) = failing(network.verdict())
    assert one.what == "the clocks of a and b differ, and there is no majority"


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"source": "192.168.1.1"}, "a reaches b from another address than its data plane's"),
        (
            {"loss": {**found("")["loss"], "arrived": 0, "returned": 0}},
            "loss between a <-> b was not measured",
        ),
    ],
)
def test_what_does_not_stop_a_run_is_a_warning(
    network: Network, change: dict[str, Any], warning: str
) -> None:
    network.probes["a", "b"].update(change)
    verdict = network.verdict()
    assert failing(verdict) == []
    (said,) = warnings(verdict)
    assert said.what == warning and said.expected and said.found and said.fix


def slow_path(network: Network, trip: float, usual: float, *ways: tuple[str, str]) -> None:
    for pair, one in network.probes.items():
        one["round_trip_best_us"] = trip if pair in ways else usual


def test_a_slow_path_is_a_warning_for_the_pair(network: Network) -> None:
    slow_path(network, 1200.0, 100.0, ("a", "b"), ("b", "a"))
    verdict = network.verdict()
    assert failing(verdict) == []
    (said,) = warnings(verdict)
    assert said.what == "the round trip between a and b is 12 times the usual one"
    assert (said.found, said.where) == ("1200 us at best", "a <-> b")


def test_a_path_that_is_fast_one_way_round_is_a_busy_host_and_no_warning(network: Network) -> None:
    slow_path(network, 1200.0, 100.0, ("a", "b"))
    assert warnings(network.verdict()) == []


@pytest.mark.parametrize(("trip", "usual"), [(999.9, 50.0), (1900.0, 200.0)])
def test_a_round_trip_in_proportion_or_below_a_millisecond_is_no_warning(
    network: Network, trip: float, usual: float
) -> None:
    slow_path(network, trip, usual, ("a", "b"), ("b", "a"))
    assert warnings(network.verdict()) == []


def test_every_port_of_every_engine_has_a_use() -> None:
    known = purposes(ENGINES, 20000)
    assert len(known) == 2 * 93 + 3
    assert known[8000] == "the API of engine chat" and known[9000] == "the API of engine code"
    assert known[20109] == "torch's rendezvous of engine code"
    assert known[20199] == "Ray workers of engine code"
    assert known[20012] == "the coordinator of the ranks that measure links"


def test_data_ranks_have_a_port_each_and_one_where_they_meet() -> None:
    ranked = {**ENGINES[0], "layout": {"data": 2}}
    known = purposes([ranked], 20000)
    assert known == {
        8000: "the API of engine chat",
        20000: "the meeting of data ranks of engine chat",
        20020: "the API of data rank 0 of engine chat",
        20021: "the API of data rank 1 of engine chat",
        **{port: known[port] for port in (20012, 20013, 20014)},
    }
    auto = purposes([{**ENGINES[0], "executor": "dp"}], 20000)
    assert auto[20099] == "the API of data rank 79 of engine chat"


def test_an_engine_keeps_the_place_it_has_in_the_kept_plan() -> None:
    kept = {"engines": [{"name": "code", "index": 0}]}
    known = purposes(ENGINES, 20000, kept)
    assert known[20000] == "Ray gcs of engine code" and known[20100] == "Ray gcs of engine chat"


def test_a_wrong_list_of_engines_is_refused() -> None:
    with pytest.raises(PlanError, match="engines names no engine"):
        purposes([], 20000)


def test_many_uses_are_told_in_few_words() -> None:
    known = purposes(ENGINES, 20000)
    assert told([20000, 20001], known) == "Ray gcs of engine chat; Ray dashboard of engine chat"
    assert told(list(known), known).endswith("and 28 other uses")
    assert told([KERNEL], known) == "the kernel's own range: gloo, NCCL"
