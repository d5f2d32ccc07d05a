"""`site.yml -i inventories/enflame` as it is shipped, over two hosts: images, ranks, one address.

Devices, driver and efsmi are stand-ins, and the image's engine is vLLM on processors: everything
else, the containers and the answers too, is real. Where vLLM stands in, answers are its own too;
`make soak` plays all of it with vLLM on processors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import wait_until
from .enflame import CLUSTER_DIR, HOSTS, Enflame

pytestmark = pytest.mark.lab
RANKS_A_HOST = 2
RANKS = HOSTS * RANKS_A_HOST


# Real vLLM takes several minutes more: the flows of one and of two hosts have it in every run.
ENGINES = (
    pytest.param("stand-in"),
    pytest.param("vllm", marks=[pytest.mark.engine, pytest.mark.soak]),
)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Return what serves."""
    return str(request.param)


@pytest.fixture(scope="module")
def site(
    real_hosts: None, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Enflame]:
    """Return the hosts on which nothing was brought up yet; nothing of them stays behind."""
    if kept := os.environ.get("VLLM_ANSIBLE_FLOW_DIR"):
        site = Enflame(Path(kept) / f"enflame-{engine}", RANKS_A_HOST, engine)
        site.equip()
        yield site
        return
    site = Enflame(tmp_path_factory.mktemp("enflame"), RANKS_A_HOST, engine)
    try:
        site.equip()
        yield site
    finally:
        site.down()


@pytest.fixture(scope="module")
def served(site: Enflame) -> tuple[Enflame, dict[str, Any]]:
    """Return the hosts with every rank serving, and what the gate found behind the one address."""
    ran = site.run()
    assert ran.status == 0, ran.output
    (router,) = ran.evidence("router")
    return site, router["values"]


def test_a_device_that_a_rank_cannot_open_is_told_with_its_host(site: Enflame) -> None:
    # Each host's second rank asks the stand-in for a device beyond those there are.
    # Ranks of a measurement have the environment of the engines of their host.
    site.write(environment={"GCU_COUNT": "1"})
    ran = site.run()
    site.write()
    failure = ran.failure
    assert failure["stage"] == "verify"
    assert failure["msg"].startswith("The links between ranks could not be measured")
    assert "topsErrorInvalidDevice" in failure["found"]
    assert failure["where"].split()[0].split(":")[0] in site.hosts
    # It says so itself: nobody waits for it until collectives_join_seconds are over.
    assert failure["expected"] == "every rank opens its device"


def test_one_command_ends_with_every_rank_behind_one_address(
    served: tuple[Enflame, dict[str, Any]],
) -> None:
    site, router = served
    assert [one["proven"] for one in router["ranks"]] == [True] * RANKS
    names = [[f"vllm-r1-r1-serve-{rank}" for rank in (0, 1)]]
    names += [[f"vllm-r1-r1-serve-{rank}" for rank in (2, 3)]]
    assert [sorted(one) for one in site.containers().values()] == names
    answers = site.answers(router["url"])
    assert len(answers) == RANKS, answers


def test_collectives_were_measured_in_the_image(served: tuple[Enflame, dict[str, Any]]) -> None:
    site, _ = served
    kept = site.run_on("lab1", "cat", f"{CLUSTER_DIR}/evidence/verify.json")
    assert json.loads(kept)["baseline"]["across"]["all_reduce"]["wrong"] == 0


def test_the_second_run_changes_nothing(served: tuple[Enflame, dict[str, Any]]) -> None:
    site, _ = served
    before = site.containers()
    ran = site.run()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    assert site.containers() == before


def test_a_drained_rank_is_asked_by_nobody_until_it_may_serve_again(
    served: tuple[Enflame, dict[str, Any]],
) -> None:
    site, router = served
    named = ("-e", "drain_engine=r1", "-e", "drain_rank=1")
    ran = site.run(*named, playbook="playbooks/drain_rank.yml")
    assert ran.status == 0, ran.output
    drained = site.answers(router["url"], RANKS - 1)
    assert sorted(drained) == ["rank-0", "rank-2", "rank-3"]
    again = site.run(*named, "-e", "drain_state=ready", playbook="playbooks/drain_rank.yml")
    assert again.status == 0, again.output
    assert len(site.answers(router["url"])) == RANKS


def test_one_changed_variable_is_refused_until_a_killed_rank_makes_all_of_them_start_anew(
    served: tuple[Enflame, dict[str, Any]],
) -> None:
    site, _ = served
    before = site.containers()
    site.write(environment={"VLLM_LOGGING_LEVEL": "WARNING"})
    refused = site.run("--tags", "plan,cluster,serve").failure
    assert "engine r1 is serving and would restart as a whole" in refused["msg"]
    assert site.containers() == before
    # Nobody is served by the others alone, so nobody is disturbed.
    site.run_on("lab2", "podman", "kill", "vllm-r1-r1-serve-2")
    ran = site.run("--tags", "plan,cluster,serve")
    assert ran.status == 0, ran.output
    (router,) = ran.evidence("router")
    assert [one["proven"] for one in router["values"]["ranks"]] == [True] * RANKS
    after = site.containers()
    assert {host: sorted(one) for host, one in after.items()} == {
        host: sorted(one) for host, one in before.items()
    }
    assert not {one for host in after.values() for one in host.values()} & {
        one for host in before.values() for one in host.values()
    }


def test_teardown_leaves_no_container(served: tuple[Enflame, dict[str, Any]]) -> None:
    site, _ = served
    ran = site.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert site.containers() == {host: {} for host in site.hosts}
    told = ("podman", "ps", "--all", "--format", "{{.Names}}: {{.Command}}, {{.Status}}")
    for host in site.hosts:
        # What removes a container that has ended does so by itself, a moment later.
        wait_until(lambda host=host: site.run_on(host, *told) == "", 60, "containers gone", 1)
