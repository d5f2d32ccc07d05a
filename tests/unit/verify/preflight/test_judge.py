"""Each check fails on what it is there for, names it, and says how to mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.provision.giver import giver
from vllm_ansible.verify.preflight import judge
from vllm_ansible.verify.preflight.check import ACCEPTED, FAIL, PASS, SKIPPED, WARN, Cluster

from .faults import BROKEN, ENFLAME, GIB, MIB, XID, of, put

Make = Callable[..., Cluster]


def test_healthy_hosts_give_no_failure_and_no_warning(healthy: Make) -> None:
    for kind in ("nvidia", "cpu", "enflame"):
        for hosts in (1, 2, 3):
            rows = judge.rows(healthy(hosts, kind))
            assert [row for row in rows if row.verdict not in (PASS, SKIPPED)] == []


def test_every_check_speaks_of_every_cluster(healthy: Make) -> None:
    names = [check.id for check in judge.CHECKS]
    assert len(names) == len(set(names))
    for made in (healthy(), healthy(1), healthy(2, "cpu"), healthy(2, "enflame")):
        rows = judge.rows(made)
        assert {row.check for row in rows} == set(names)
        assert [row for row in rows if row.verdict == SKIPPED and not row.found] == []


@pytest.mark.parametrize("check", ["memlock", "nofile", "shm"])
def test_limits_of_containers_that_a_cloud_starts_are_nothing_to_raise_by_hand(
    healthy: Make, check: str
) -> None:
    made = healthy()
    given = giver("runpod").limits
    look = made.looks["n2"]
    look["limits"] |= {"memlock": 8 * MIB, "nofile": 100}
    look["memory"]["shared"] |= {"total": MIB, "free": MIB}
    fix = of(judge.rows(replace(made, limits=given)), check, "n2").fix
    assert "its API has no field for it" in fix and "--" not in fix
    assert "start it with --" in of(judge.rows(made), check, "n2").fix


@pytest.mark.parametrize(("check", "change", "verdict", "found"), BROKEN + ENFLAME)
def test_a_broken_host_is_found_named_and_given_its_fix(
    healthy: Make, check: str, change: Any, verdict: str, found: str
) -> None:
    kind = "enflame" if (check, change, verdict, found) in ENFLAME else "nvidia"
    made = healthy(kind=kind)
    change(made.looks["n2"])
    row = of(judge.rows(made), check)
    assert (row.verdict, found in row.found) == (verdict, True), row
    assert row.threshold and row.fix and row.why and "n2" in row.host
    # Its neighbours are not blamed for it.
    others = [one for one in judge.rows(made) if one.check == check and one.host in ("n1", "n3")]
    assert [one for one in others if one.verdict in (FAIL, WARN)] == []


def test_every_check_but_the_note_has_a_test_in_which_it_fails() -> None:
    tested = {check for check, *_ in BROKEN + ENFLAME} | {"device_strangers", "nfs_options"}
    assert {check.id for check in judge.CHECKS} - tested == {"kernel"}


def test_a_stranger_on_a_device_is_named_with_process_and_user(healthy: Make, h200: Any) -> None:
    made = healthy()
    made.looks["n2"]["devices"] = h200["held"]
    rows = judge.rows(made)
    stranger = of(rows, "device_strangers")
    assert stranger.verdict == WARN
    assert f"process {h200['pid']} (python3) of root holds 20.5 GiB" in stranger.found
    assert stranger.fix.endswith(f"kill {h200['pid']}")
    memory = of(rows, "device_memory")
    assert memory.verdict == FAIL and "device 0: 119.3 GiB of 140.4 GiB" in memory.found
    # Who holds it is named where it stops the run, with how to end it.
    assert f"process {h200['pid']} (python3) of root holds 20.5 GiB" in memory.found
    assert memory.fix == stranger.fix
    # An engine that asks for less has room beside it.
    less = [{"name": "chat", "vllm_args": {"gpu_memory_utilization": 0.8}}]
    assert of(judge.rows(replace(made, engines=less)), "device_memory").verdict == PASS


def test_our_own_engine_on_a_device_is_no_stranger_and_needs_no_free_memory(
    healthy: Make, h200: Any
) -> None:
    made = healthy()
    made.looks["n2"]["devices"] = h200["held"]
    made.looks["n2"]["devices"]["devices"][0]["processes"][0]["ours"] = True
    rows = judge.rows(made)
    assert of(rows, "device_strangers").verdict == PASS
    assert of(rows, "device_memory").verdict == PASS


@pytest.mark.parametrize(
    ("options", "verdict", "found"),
    [
        ("rw,vers=4.2,hard,local_lock=none", PASS, "as wanted"),
        ("rw,vers=4.2,soft", FAIL, "soft"),
        ("rw,vers=3,hard,nolock", FAIL, "nolock vers=3"),
        ("rw,vers=4.1,hard,local_lock=all", FAIL, "local_lock=all"),
        ("rw,vers=4.0,hard", WARN, "vers=4.0"),
        ("rw,vers=4.2,hard,noac", WARN, "noac"),
    ],
)
def test_options_of_nfs_are_judged(healthy: Make, options: str, verdict: str, found: str) -> None:
    made = healthy()
    models = made.looks["n2"]["storage"]["models"]
    models.update(point="/opt/c/models", kind="nfs4", options=options, network=True)
    row = of(judge.rows(made), "nfs_options")
    assert (row.verdict, found in row.found) == (verdict, True), row


def test_a_minor_release_of_cuda_behind_only_warns(healthy: Make) -> None:
    assert of(judge.rows(healthy(cuda="13.1")), "cuda").verdict == WARN
    assert of(judge.rows(healthy(cuda="")), "cuda").verdict == SKIPPED


def test_an_error_of_an_application_is_only_told(healthy: Make) -> None:
    made = healthy()
    watched = {**XID["errors"][0], "code": 31, "verdict": "watch"}  # type: ignore[index]  # a literal of this file
    put("devices.kernel_log", {"readable": True, "errors": [watched]})(made.looks["n2"])
    row = of(judge.rows(made), "xid")
    assert row.verdict == PASS and "Xid 31" in row.found
    put("devices.kernel_log", {"readable": False, "why": "/dev/kmsg", "errors": []})(
        made.looks["n2"]
    )
    assert of(judge.rows(made), "xid").verdict == SKIPPED


def test_a_port_that_is_down_everywhere_is_not_in_use(healthy: Make) -> None:
    made = healthy()
    for look in made.looks.values():
        look["rdma"]["mlx5_1"]["ports"]["1"]["state"] = "DOWN"
    row = of(judge.rows(made), "hca_state")
    assert row.verdict == PASS and "down everywhere: mlx5_1/1" in row.found
    for look in made.looks.values():
        look["rdma"]["mlx5_0"]["ports"]["1"]["state"] = "INIT"
    assert of(judge.rows(made), "hca_state").verdict == FAIL


def test_one_host_has_no_peers_and_processors_no_fabric(healthy: Make) -> None:
    made = healthy(1, "cpu")
    made.looks["n1"]["data_plane"]["resolves_to"] = ["127.0.1.1"]
    made.looks["n1"]["limits"]["memlock"] = 8 * MIB
    rows = judge.rows(made)
    assert of(rows, "hostname", "n1").verdict == SKIPPED
    assert of(rows, "memlock", "n1").verdict == SKIPPED


def test_shared_memory_is_what_ray_and_vllm_take_of_it(healthy: Make) -> None:
    def verdict(size: int, **more: Any) -> str:
        made = healthy(2, "cpu", **more)
        put("memory.available", 20 * GIB)(made.looks["n2"])
        put("memory.shared.free", size)(made.looks["n2"])
        return of(judge.rows(made), "shm").verdict

    assert verdict(7 * GIB) == PASS
    assert verdict(5 * GIB) == WARN
    assert verdict(64 * MIB) == FAIL
    assert verdict(GIB, engines=[{"name": "chat", "executor": "mp"}]) == PASS


def test_an_accepted_failure_stays_in_sight(healthy: Make) -> None:
    made = healthy()
    put("limits.nofile", 100)(made.looks["n2"])
    put("limits.nofile", 100)(made.looks["n3"])
    rows = judge.rows(made)
    assert judge.summary(rows, 3).endswith("1 fail, 7 do not apply")
    one = judge.accept(rows, ["nofile@n2"])
    assert [of(one, "nofile", host).verdict for host in ("n2", "n3")] == [ACCEPTED, FAIL]
    every = judge.accept(rows, ["nofile"])
    assert [of(every, "nofile", host).verdict for host in ("n2", "n3")] == [ACCEPTED, ACCEPTED]
    assert "1 accepted" in judge.summary(every, 3)
    # One list serves all gates of a stage: a name of another, or a slip, accepts nothing here.
    assert judge.accept(rows, ["links@n2", "nofiles"]) == rows


def test_a_summary_counts_checks_not_rows(healthy: Make) -> None:
    assert judge.summary(judge.rows(healthy()), 3) == (
        "36 checks on 3 hosts: 36 pass, 7 do not apply"
    )


def without_nvcc(made: Cluster, **installed: str) -> Cluster:
    put("kernels.tools.chat.nvcc", "")(made.looks["n2"])
    made.looks["n2"]["kernels"]["installed"].update(installed)
    return made


CUBIN = {"flashinfer-cubin": "0.7.0.post1"}
CACHE = {"flashinfer-jit-cache": "0.7.0.post1+cu130"}


@pytest.mark.parametrize(
    ("installed", "verdict", "found"),
    [
        ({**CUBIN, **CACHE}, PASS, "precompiled kernels of FlashInfer 0.7.0.post1"),
        (CUBIN, FAIL, "no nvcc"),
        ({**CUBIN, "flashinfer-jit-cache": "0.6.13+cu130"}, FAIL, "no nvcc"),
        ({"vllm": "0.22.0+cu129"}, FAIL, "no nvcc"),
    ],
)
def test_only_precompiled_kernels_of_the_same_release_need_no_compiler(
    healthy: Make, installed: dict[str, str], verdict: str, found: str
) -> None:
    row = of(judge.rows(without_nvcc(healthy(), **installed)), "kernel_compiler")
    assert (row.verdict, found in row.found) == (verdict, True), row


@pytest.mark.parametrize(
    ("version", "asked", "verdict"),
    [("0.32.0", "0", WARN), ("0.32.0", 1, FAIL), ("0.19.1", "1", FAIL)],
)
def test_an_engine_that_does_without_flashinfers_sampler_is_only_warned_of(
    healthy: Make, version: str, asked: Any, verdict: str
) -> None:
    engines = [{"name": "chat", "environment": {"VLLM_USE_FLASHINFER_SAMPLER": asked}}]
    made = without_nvcc(healthy(engines=engines), vllm=version)
    assert of(judge.rows(made), "kernel_compiler").verdict == verdict


def test_where_no_flashinfer_is_known_of_nothing_is_said_of_its_compiler(healthy: Make) -> None:
    for installed, reason in (({}, "no environment"), ({"vllm": "0.32.0"}, "FlashInfer is not in")):
        made = healthy(1)
        put("kernels.installed", installed)(made.looks["n1"])
        (row,) = [one for one in judge.rows(made) if one.check == "kernel_compiler"]
        assert row.verdict == SKIPPED and reason in row.found
