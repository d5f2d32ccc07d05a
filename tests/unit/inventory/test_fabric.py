"""NCCL is kept on EFA by one environment, which engines and measurements share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.environment import Room, node_environment
from vllm_ansible.plan.fabric import fabric_environment, host_environment
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

EFA = {
    **{"machine": "p5.48xlarge", "cards": 32, "on_the_bus": 32, "installer": "1.51.0"},
    "libfabric": "/opt/amazon/efa/lib",
    "plugin": "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
}
LOOK = {"efa": EFA, "accelerator": "nvidia"}
KEPT = {
    "FI_PROVIDER": "efa",
    "LD_LIBRARY_PATH": "/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib",
    "NCCL_NET": "AWS Libfabric",
    "NCCL_NET_PLUGIN": "ofi",
}
HOST = {
    **{"name": "n1", "cluster_dir": "/c", "run_dir": "/r", "interface": "ens1"},
    **{"address": "10.0.0.1", "accelerator": "nvidia", "accelerator_count": 8},
}


def room(host: Mapping[str, Any], image: Mapping[str, Any] | None = None, shown: str = "") -> Room:
    engines = parse_engines([{"name": "r1", "model": "o/m", "layout": {"tensor": 8}}])
    plan = make_plan("main", engines, (Capacity("n1", "nvidia", 8, tuple(range(8))),))
    return Room(host, plan.engines[0], "/e", image=image or {}, shown=shown)


def test_nccl_fails_where_it_would_fall_back_to_sockets() -> None:
    assert fabric_environment(LOOK, "auto", 2) == KEPT


def test_a_plugin_of_the_old_name_is_found_by_nccl_itself() -> None:
    old = {**LOOK, "efa": {**EFA, "plugin": "/opt/aws-ofi-nccl/lib/libnccl-net.so"}}
    found = fabric_environment(old, "check", 2)
    assert "NCCL_NET_PLUGIN" not in found
    assert found["NCCL_NET"] == "AWS Libfabric"
    assert found["LD_LIBRARY_PATH"] == "/opt/aws-ofi-nccl/lib:/opt/amazon/efa/lib"


@pytest.mark.parametrize(
    ("look", "mode", "hosts"),
    [
        (LOOK, "skip", 2),
        (LOOK, "auto", 1),
        ({**LOOK, "accelerator": "cpu"}, "auto", 2),
        ({**LOOK, "efa": {**EFA, "cards": 0}}, "auto", 2),
        ({**LOOK, "efa": {**EFA, "plugin": ""}}, "auto", 2),
        ({**LOOK, "efa": {**EFA, "libfabric": ""}}, "auto", 2),
        ({"accelerator": "nvidia"}, "auto", 2),
    ],
)
def test_hosts_without_efa_get_nothing(look: dict[str, Any], mode: str, hosts: int) -> None:
    assert fabric_environment(look, mode, hosts) == {}


def test_a_sites_libraries_stay_behind_those_of_the_fabric() -> None:
    host = {"site_environment": {"LD_LIBRARY_PATH": "/site", "A": "1"}, "fabric_environment": KEPT}
    found = host_environment(host)
    assert found == {**KEPT, "A": "1", "LD_LIBRARY_PATH": f"{KEPT['LD_LIBRARY_PATH']}:/site"}
    assert host_environment({"site_environment": {"A": "1"}}) == {"A": "1"}
    assert host_environment({}) == {}


def test_an_engine_has_what_measurements_have() -> None:
    before = node_environment(room(HOST))
    found = node_environment(room({**HOST, "fabric_environment": KEPT}))
    assert found == {**before, **KEPT}


def test_an_image_has_libraries_of_its_own() -> None:
    host = {**HOST, "fabric_environment": KEPT}
    assert node_environment(room(host, image={"tool": "podman"})) == node_environment(
        room(HOST, image={"tool": "podman"})
    )
    assert "NCCL_NET" not in node_environment(room(host, shown="/models/m"))
    assert host_environment(host, contained=True) == {}
