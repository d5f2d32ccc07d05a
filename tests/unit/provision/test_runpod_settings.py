"""What an inventory may say about pods, and what is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.provision.fleet import NOWHERE, READY, Machine
from vllm_ansible.provision.provider import provider
from vllm_ansible.provision.runpod_settings import Settings, devices_of, settings
from vllm_ansible.provision.slots import hosts


def given(directory: Path, **more: Any) -> Settings:
    said = {
        "cluster_name": "r1",
        "runpod_api_key_file": str(directory / "key"),
        "runpod_ssh_public_key_file": str(directory / "key.pub"),
        "runpod_instance_types": ["8x NVIDIA H200"],
        "runpod_data_centers": ["US-KS-2"],
        "node_count": 2,
        **more,
    }
    return settings({name: one for name, one in said.items() if one is not None}, "here")


def test_a_few_lines_are_enough(tmp_path: Path) -> None:
    wanted = given(tmp_path, node_count="2", max_usd_per_hour="80", runpod_adopt="true")
    assert (wanted.count, wanted.max_cents_per_hour, wanted.adopt) == (2, 8000, True)
    assert (wanted.spend_limit, wanted.remove_volume, wanted.replace) == (80, False, False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runpod_data_centers": None}, "runpod_data_centers is not set"),
        ({"runpod_data_centers": []}, "runpod_data_centers is empty"),
        ({"runpod_instance_types": ["NVIDIA H200"]}, "runpod_instance_types is 'NVIDIA H200'"),
        ({"runpod_instance_types": ["0x NVIDIA H200"]}, "runpod_instance_types is '0x"),
        ({"node_count": 0}, "node_count is 0"),
        ({"node_count": 251}, "node_count is 251"),
        ({"spare_count": 1}, "RunPod adds no pod to a cluster"),
        ({"cluster_name": "R 1"}, "cluster_name is 'R 1'"),
        ({"runpod_volume_gb": 5}, "runpod_volume_gb is 5"),
        ({"runpod_volume_path": "data"}, "runpod_volume_path is 'data'"),
        ({"runpod_disk_gb": 0}, "runpod_disk_gb is 0"),
        ({"runpod_endpoint": "http://api.runpod.io/v2"}, "runpod_endpoint is"),
        ({"runpod_cpu_types": ["6x cpu5c"]}, "runpod_cpu_types is '6x cpu5c'"),
        ({"runpod_cpu_types": ["cpu5c"]}, "runpod_cpu_types is 'cpu5c'"),
        ({"runpod_cpu_disk_gb": 0}, "runpod_cpu_disk_gb is 0"),
        ({"runpod_fill": True}, "runpod_fill fills the network volume"),
        (
            {"runpod_fill": True, "runpod_volume": "r1", "models_dir": "/opt/models"},
            "the models are not on it",
        ),
        ({"runpod_start_command": "/start.sh; 'x'"}, "runpod_start_command is"),
        ({"cluster_dir": "/data/$(x)"}, "cluster_dir is '/data/$(x)'"),
        ({"runpod_load": True}, "reaches the engines through the door alone"),
        ({"runpod_publish_door": True}, "publishes a port that the door does not listen at"),
        ({"runpod_spend_limit": "much"}, "runpod_spend_limit is 'much'"),
        ({"max_hours": -1}, "max_hours is -1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as refused:
        given(tmp_path, **change)
    assert words in str(refused.value)


def test_keys_have_to_be_there_before_anything_is_asked(tmp_path: Path) -> None:
    wanted = given(tmp_path)
    with pytest.raises(PlanError, match="the key of RunPod's API cannot be taken from"):
        wanted.ready()
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    for text in ("", "ssh-ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"):
        (tmp_path / "key.pub").write_text(text)
        with pytest.raises(PlanError, match="no public SSH key can be read") as refused:
            wanted.ready()
        # A private key that was named by mistake is not shown.
        assert "AAAA" not in str(refused.value)
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me\n")
    wanted.ready()


@pytest.mark.parametrize(
    ("kind", "devices"),
    [
        ("8x NVIDIA H200", (8, "H200")),
        ("4x NVIDIA H100 80GB HBM3", (4, "H100-80")),
        ("1x NVIDIA New", (1, "NVIDIA New")),
        ("gpu", None),
    ],
)
def test_a_type_says_what_it_has(kind: str, devices: tuple[int, str] | None) -> None:
    assert devices_of(kind) == devices


def test_pods_are_containers_whose_ranks_talk_over_the_clusters_own_network(tmp_path: Path) -> None:
    cloud = provider("runpod")
    assert (cloud.user, cloud.together) == ("root", True)
    own = {"supervisor": "supervisord"}
    assert cloud.variables(given(tmp_path)) == {**own, "data_plane_interface": "ens1"}
    assert cloud.variables(given(tmp_path, node_count=1)) == own


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("a-1.example.org", "a-1.example.org"),
        ("", NOWHERE),
        ("-oProxyCommand=x", NOWHERE),
        ("{{ key }}", NOWHERE),
    ],
)
def test_a_host_is_reached_by_an_address_or_a_name_and_nothing_else(
    tmp_path: Path, address: str, host: str
) -> None:
    pod = Machine("p", 0, READY, "8x NVIDIA H200", "US-KS-2", 1, "", 0.0, address, port=2201)
    (one, _) = hosts(given(tmp_path), [pod])
    assert (one.variables["ansible_host"], one.variables["ansible_port"]) == (host, 2201)
