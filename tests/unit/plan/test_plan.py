from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity, host_counts
from vllm_ansible.plan.plan import Plan, make_plan
from vllm_ansible.plan.ports import (
    INTERNAL_BASE,
    blocks_from,
    cluster_ports,
    ports_for,
    shared_ports,
)
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError


def hosts(*counts: int, accelerator: str = "cpu") -> list[Capacity]:
    return [Capacity.whole(f"n{i}", accelerator, count) for i, count in enumerate(counts, 1)]


def plan(
    engines: list[dict[str, Any]], capacities: list[Capacity], kept: Plan | None = None
) -> Plan:
    wanted = parse_engines([{"model": "org/model", **engine} for engine in engines])
    return make_plan("c", wanted, capacities, kept)


def places(made: Plan, name: str) -> list[tuple[str, int]]:
    engine = made.engine(name)
    assert engine is not None
    return [(rank.host, rank.device) for rank in engine.ranks]


@pytest.mark.parametrize(
    ("layout", "counts", "expected"),
    [
        ("auto", (1,), [("n1", 0)]),
        ("auto", (4, 4), [("n1", 0)]),
        ({"tensor": 2}, (1, 1), [("n1", 0), ("n2", 0)]),
        ({"tensor": 2}, (2, 2), [("n1", 0), ("n1", 1)]),
        ({"pipeline": 2}, (2, 2), [("n1", 0), ("n2", 0)]),
        ({"pipeline": 2}, (2,), [("n1", 0), ("n1", 1)]),
        ({"tensor": 2, "pipeline": 2}, (2, 2), [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]),
        ({"pipeline": 4}, (2, 2, 0), [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]),
        ({"tensor": 4}, (1, 2, 2), [("n2", 0), ("n2", 1), ("n3", 0), ("n3", 1)]),
    ],
)
def test_ranks_go_where_the_layout_says(
    layout: Any, counts: tuple[int, ...], expected: list[tuple[str, int]]
) -> None:
    assert places(plan([{"name": "a", "layout": layout}], hosts(*counts)), "a") == expected


def test_nodes_forces_the_number_of_hosts() -> None:
    engine = {"name": "a", "layout": {"tensor": 2}, "nodes": 2}
    assert places(plan([engine], hosts(2, 2)), "a") == [("n1", 0), ("n2", 0)]


def test_an_engine_keeps_to_the_hosts_it_names_in_their_order() -> None:
    engine = {"name": "a", "layout": {"pipeline": 2}, "hosts": ["n3", "n1"]}
    assert places(plan([engine], hosts(1, 1, 1)), "a") == [("n3", 0), ("n1", 0)]


def test_two_engines_of_one_host_share_no_device_and_no_port() -> None:
    made = plan(
        [{"name": "a", "layout": {"pipeline": 2}}, {"name": "b", "layout": {"tensor": 2}}],
        hosts(2, 2),
    )
    assert places(made, "a") == [("n1", 0), ("n2", 0)]
    assert places(made, "b") == [("n1", 1), ("n2", 1)]
    assert shared_ports(made.engines[0].ports, made.engines[1].ports) == ()


@pytest.mark.parametrize(
    ("engine", "counts", "words"),
    [
        ({"layout": {"tensor": 4}}, (1, 1, 1), ["4 accelerators", "n1 1 of 1", "4 x 1"]),
        ({"layout": {"tensor": 4}, "nodes": 3}, (4, 4, 4), ["4 ranks", "3 hosts"]),
        ({"hosts": ["n9"]}, (1,), ["n9", "group gpu"]),
        ({}, (0,), ["n1 0 of 0"]),
    ],
)
def test_a_layout_without_room_is_refused_with_its_numbers(
    engine: dict[str, Any], counts: tuple[int, ...], words: list[str]
) -> None:
    with pytest.raises(PlanError) as refusal:
        plan([{"name": "a", **engine}], hosts(*counts))
    assert [word for word in words if word not in str(refusal.value)] == []


def test_hosts_of_two_kinds_are_never_mixed() -> None:
    mixed = [*hosts(1), Capacity.whole("n2", "nvidia", 1)]
    with pytest.raises(PlanError, match=r"2 accelerators"):
        plan([{"name": "a", "layout": {"pipeline": 2}}], mixed)


def test_an_unchanged_engine_stays_where_it_is() -> None:
    before = plan([{"name": "a"}, {"name": "b"}], hosts(1, 1))
    after = plan([{"name": "b"}, {"name": "c"}], hosts(1, 1), before)
    assert places(after, "b") == [("n2", 0)]
    assert (after.engine("b") or after.engines[1]).ports == ports_for(1)
    assert places(after, "c") == [("n1", 0)]
    assert (after.engine("c") or after.engines[0]).index == 2


def test_a_changed_engine_is_planned_again_under_its_old_index() -> None:
    before = plan([{"name": "a"}, {"name": "b"}], hosts(2, 2))
    after = plan([{"name": "b", "layout": {"tensor": 2}}], hosts(2, 2), before)
    assert [(e.name, e.index, e.layout) for e in after.engines] == [("b", 1, Layout(2, 1))]


def test_a_changed_engine_goes_back_to_its_hosts_while_they_have_room() -> None:
    two = {"name": "a", "layout": {"pipeline": 2}}
    before = plan([{**two, "hosts": ["n3", "n2"]}], hosts(1, 1, 1))
    after = plan([two], hosts(1, 1, 1), before)
    assert places(after, "a") == [("n3", 0), ("n2", 0)]
    assert "where it was before it changed" in after.engines[0].reasons[1]
    # Larger than before, it keeps what it had and takes what comes next; without room it moves.
    after = plan([{"name": "a", "layout": {"pipeline": 3}}], hosts(1, 1, 1), before)
    assert places(after, "a") == [("n3", 0), ("n2", 0), ("n1", 0)]
    after = plan([two], hosts(1, 1, 0), before)
    assert places(after, "a") == [("n2", 0), ("n1", 0)]
    mixed = [*hosts(1, 1), Capacity.whole("n3", "nvidia", 1)]
    assert places(plan([two], mixed, before), "a") == [("n1", 0), ("n2", 0)]


def test_an_engine_moves_when_its_device_is_gone() -> None:
    before = plan([{"name": "a", "layout": {"tensor": 2}}], hosts(2, 2))
    assert places(before, "a") == [("n1", 0), ("n1", 1)]
    after = plan([{"name": "a", "layout": {"tensor": 2}}], hosts(1, 2), before)
    assert places(after, "a") == [("n2", 0), ("n2", 1)]


def test_ranks_go_to_the_devices_that_answer() -> None:
    def host(count: int, *indices: int) -> list[Capacity]:
        return [Capacity.whole("n1", "enflame", count, None, indices)]

    asked = [{"name": "a", "model": "o/m", "layout": {"tensor": 4}}]
    answering = (0, 1, 2, 4, 5, 6, 7)
    made = plan(asked, host(7, *answering))
    assert places(made, "a") == [("n1", 0), ("n1", 1), ("n1", 2), ("n1", 4)]
    assert plan(asked, host(7, *answering), made).digest == made.digest
    # A host on which all answer is planned as one whose devices nobody has seen.
    before = plan(asked, host(8))
    assert plan(asked, host(8, *range(8))).digest == before.digest
    assert plan(asked, host(8, *range(8)), before).digest == before.digest
    # Its device 3 is gone, though as many are left as it needs; without numbers none is known so.
    assert plan(asked, host(7, *answering), before).digest == made.digest
    assert plan(asked, host(7), before).digest == before.digest
    # Fewer than are declared, as before a driver is mended: nobody knows which there will be.
    assert places(plan(asked, host(4, 5, 6)), "a")[-1] == ("n1", 3)


def test_a_plan_survives_its_file() -> None:
    engine = {"name": "a", "layout": {"pipeline": 2}, "vllm_args": {"max_model_len": 64}}
    made = plan([engine], hosts(1, 1))
    read = Plan.from_dict(json.loads(json.dumps(made.to_dict())))
    assert read == made
    assert read.digest == made.digest


def test_a_kept_plan_that_lacks_a_port_is_completed() -> None:
    made = plan([{"name": "a"}], hosts(1))
    kept = made.to_dict()
    del kept["engines"][0]["ports"]["dashboard_metrics"]
    assert Plan.from_dict(kept) == made


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(PlanError, match="version 7"):
        Plan.from_dict({"version": 7})


@pytest.mark.parametrize(
    "change",
    [
        {"engines": "none"},
        {"engines": [{"name": "a"}]},
        {"engines": [{**plan([{"name": "a"}], hosts(1)).to_dict()["engines"][0], "new": 1}]},
        {"engines": None},
    ],
)
def test_a_plan_of_another_shape_is_refused_in_one_sentence(change: dict[str, Any]) -> None:
    kept = {**plan([{"name": "a"}], hosts(1)).to_dict(), **change}
    with pytest.raises(PlanError) as refused:
        Plan.from_dict(kept)
    (problem,) = refused.value.problems
    assert problem.message == "the kept plan is not one that this program wrote"
    assert "teardown" in problem.fix and problem.found


def test_a_port_of_one_engine_inside_the_block_of_another_is_refused() -> None:
    with pytest.raises(PlanError, match="port 20005 of n1"):
        plan([{"name": "a"}, {"name": "b", "port": 20005}], hosts(2))


ENGINES_AT_MOST = blocks_from(INTERNAL_BASE)


@given(st.integers(0, ENGINES_AT_MOST - 1), st.integers(0, ENGINES_AT_MOST - 1))
def test_port_blocks_never_overlap(first: int, second: int) -> None:
    shared = shared_ports(ports_for(first), ports_for(second))
    assert bool(shared) == (first == second)


def test_two_clusters_on_one_host_use_ports_of_their_own() -> None:
    engines = parse_engines([{"name": "a", "model": "o/m", "port": 8100}])
    kept = make_plan("c", engines, hosts(1))
    (moved,) = make_plan("c", engines, hosts(1), kept, port_base=26000).engines
    assert moved.ports.gcs == 26000
    assert shared_ports(moved.ports, ports_for(0)) == ()
    again = Plan.from_dict(Plan("c", (moved,)).to_dict())
    assert make_plan("c", engines, hosts(1), again, port_base=26000).engines == (moved,)


def test_a_cluster_whose_ports_were_moved_answers_at_its_own_too() -> None:
    assert [ports_for(index).api for index in (0, 1)] == [8000, 8001]
    moved = [ports_for(index, None, 26000) for index in (0, 1)]
    assert [one.api for one in moved] == [26015, 26115]
    # Beside all that listens in the block: of the engine, and of the cluster itself.
    listened = [*asdict(moved[0]).values(), *asdict(cluster_ports(26000)).values()]
    assert len(set(listened)) == len(listened)
    assert moved[0].api < moved[0].worker_first
    assert ports_for(0, 9000, 26000).api == 9000


@pytest.mark.parametrize("base", [32700, 700])
def test_ports_stay_between_the_reserved_and_the_ephemeral(base: int) -> None:
    engines = parse_engines([{"name": "a", "model": "o/m"}])
    with pytest.raises(PlanError, match=f"port {base} on there is room for 0"):
        make_plan("c", engines, hosts(1), port_base=base)


@given(
    counts=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_whatever_is_planned_holds(counts: list[int], sizes: list[tuple[int, int]]) -> None:
    engines = [
        {"name": f"e{i}", "layout": {"tensor": tensor, "pipeline": pipeline}}
        for i, (tensor, pipeline) in enumerate(sizes)
    ]
    try:
        made = plan(engines, hosts(*counts))
    except PlanError as refusal:
        assert all(problem.fix for problem in refusal.problems)
        return
    taken = [(rank.host, rank.device) for engine in made.engines for rank in engine.ranks]
    room = {(f"n{i}", device) for i, count in enumerate(counts, 1) for device in range(count)}
    assert len(taken) == len(set(taken))
    assert set(taken) <= room
    for engine in made.engines:
        assert len(engine.ranks) == engine.layout.world_size
        assert {len(engine.devices(host)) for host in engine.hosts} == {
            engine.layout.world_size // len(engine.hosts)
        }
        assert [rank.host for rank in engine.ranks] == sorted(
            (rank.host for rank in engine.ranks), key=engine.hosts.index
        )
    assert plan(engines, hosts(*counts), made) == made


@given(st.integers(1, 16), st.integers(1, 16))
def test_host_counts_divide_the_ranks(tensor: int, pipeline: int) -> None:
    counts = host_counts(Layout(tensor, pipeline), None)
    assert counts[0] == pipeline
    assert all(tensor * pipeline % count == 0 for count in counts)
    assert len(counts) == len(set(counts))
