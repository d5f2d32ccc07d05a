"""A host that lacks nothing differs in nothing; each thing taken from it is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.system.wants import CONCERNS, Wants

Judged = Callable[..., Any]


def put(look: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split("/")
    for name in above:
        look = look[name] if not isinstance(look, list) else look[int(name)]
    look[last] = value


def test_a_host_that_lacks_nothing_differs_in_nothing(judged: Judged, look: dict[str, Any]) -> None:
    found = judged(look)
    assert {name: one["differences"] for name, one in found.items()} == dict.fromkeys(CONCERNS, ())
    assert found["hugepages"]["why"] == "no EFA device"
    assert not any(any(one["repair"].values()) for name, one in found.items() if name != "limits")


@pytest.mark.parametrize(
    ("concern", "path", "value", "what", "found", "fix", "needed"),
    [
        ("limits", "limits/login/memlock", [8 << 20, 8 << 20], "locked memory of a login",
         "8388608, at most 8388608", "/etc/security/limits.d", True),
        ("limits", "limits/login/nofile", [1024, 4096], "open files of a login",
         "1024, at most 4096", "/etc/security/limits.d", True),
        ("limits", "limits/login/nofile", [1024, 524288], "open files of a login",
         "1024, at most 524288", "/etc/security/limits.d", False),
        ("limits", "limits/units/memlock", [8 << 20, 8 << 20], "locked memory of a unit of systemd",
         "8388608, at most 8388608", "/etc/systemd/system.conf.d", False),
        ("hosts_file", "hosts_file/addresses", ["127.0.1.1"], "the host's own name one",
         "127.0.1.1", "take one off the lines of 127.*", True),
        ("hosts_file", "hosts_file/addresses", ["10.0.0.1", "::1"], "the host's own name one",
         "10.0.0.1, ::1", "take one off", True),
        ("hosts_file", "hosts_file/addresses", [], "the host's own name one",
         "no address", "10.0.0.1 one", True),
        ("hosts_file", "hosts_file/hosts_file", "127.0.0.1 localhost\n10.0.0.1 one\n",
         "names of the data plane", "another block", "add the lines", False),
        ("network", "network/modules/rdma_ucm", False, "the kernel modules of RDMA",
         "not loaded: rdma_ucm", "modprobe --all rdma_ucm", True),
        ("network", "network/verbs", False, "the library of RDMA", "none",
         "install rdma-core libibverbs1", True),
        ("container_runtime", "container_runtime/docker", False, "the container runtime docker",
         "not there", "install docker.io", True),
        ("container_runtime", "container_runtime/toolkit", False, "the NVIDIA container toolkit",
         "not there", "install nvidia-container-toolkit", True),
        ("container_runtime", "container_runtime/device_lists", [],
         "the list of devices /etc/cdi/nvidia.yaml", "not there", "nvidia-ctk cdi generate", True),
        ("container_runtime", "container_runtime/docker_control_groups", "systemd",
         "Docker's driver of control groups", "systemd", "native.cgroupdriver=cgroupfs", True),
    ],
)  # fmt: skip
def test_what_is_taken_is_found(
    judged: Judged,
    look: dict[str, Any],
    concern: str,
    path: str,
    value: Any,
    what: str,
    found: str,
    fix: str,
    needed: bool,
) -> None:
    put(look, path, value)
    (one,) = judged(look)[concern]["differences"]
    assert one["what"] == what
    assert found in one["found"]
    assert fix in one["fix"]
    assert one["needed"] is needed
    others = {name: it["differences"] for name, it in judged(look).items() if name != concern}
    assert not any(others.values())


def test_a_clock_that_nobody_keeps_is_found(judged: Judged, look: dict[str, Any]) -> None:
    look["time"] = {"synchronised": False, "daemons": [], "settable": True}
    (one,) = judged(look)["time"]["differences"]
    assert "no time daemon runs" in one["found"]
    assert judged(look)["time"]["repair"]["packages"] == ("chrony",)
    assert judged(look)["time"]["repair"]["services"] == ("chrony",)


def test_a_daemon_that_has_not_synchronised_yet_is_only_told(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["time"] = {"synchronised": False, "daemons": ["chronyd"], "settable": True}
    assert not judged(look)["time"]["differences"]
    assert "chronyd runs" in judged(look)["time"]["notes"][0]


def test_a_container_is_not_asked_for_a_clock(judged: Judged, look: dict[str, Any]) -> None:
    look["time"] = {"synchronised": False, "daemons": [], "settable": False}
    assert "clock of its machine" in judged(look)["time"]["why"]
    look["time"]["settable"], look["container"] = True, True
    assert "clock of its machine" in judged(look)["time"]["why"]


def test_names_of_services_and_packages_are_those_of_the_distribution(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    look["time"] = {"synchronised": False, "daemons": [], "settable": True}
    look["network"]["verbs"] = False
    found = judged(look, replace(want, distribution="rocky"))
    assert found["time"]["repair"]["services"] == ("chronyd",)
    assert found["network"]["repair"]["packages"] == ("rdma-core", "libibverbs")


def test_efa_takes_huge_pages_for_each_processor(judged: Judged, look: dict[str, Any]) -> None:
    look["devices"] = [{"name": "rdmap0", "driver": "efa", "ports": []}]
    found = judged(look)["hugepages"]
    # 96 processors x 110 MiB, in pages of 2 MiB, and one.
    assert found["differences"][0]["expected"].startswith("5281 of 2048 KiB")
    assert found["repair"]["files"][0]["text"].endswith("vm.nr_hugepages = 5281\n")
    look["hugepages"]["pages"] = 5281
    assert not judged(look)["hugepages"]["differences"]


def test_no_more_huge_pages_are_taken_than_there_is_memory(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["devices"] = [{"name": "rdmap0", "driver": "efa", "ports": []}]
    look["hugepages"]["available_kib"] = 8 << 20
    found = judged(look)["hugepages"]
    assert "10 GiB, more memory than is available" in found["notes"][0]
    assert not any(found["repair"].values())


def test_efa_uses_no_pages_of_half_a_gib(judged: Judged, look: dict[str, Any]) -> None:
    look["devices"] = [{"name": "rdmap0", "driver": "efa", "ports": []}]
    look["hugepages"]["page_kib"] = 524288
    assert judged(look)["hugepages"]["why"] == "EFA uses no huge pages of 524288 KiB"


def test_docker_is_not_restarted_under_containers(judged: Judged, look: dict[str, Any]) -> None:
    look["container_runtime"]["docker_control_groups"] = "systemd"
    look["container_runtime"]["docker_running"] = 3
    found = judged(look)["container_runtime"]
    assert "3 containers run" in found["notes"][0]
    assert not found["repair"]["files"] and not found["repair"]["commands"]


def test_dockers_other_settings_stay(judged: Judged, look: dict[str, Any]) -> None:
    look["container_runtime"]["docker_control_groups"] = "systemd"
    look["container_runtime"]["docker_settings"] = {
        "log-driver": "journald",
        "exec-opts": ["native.cgroupdriver=systemd", "other=1"],
    }
    (file,) = judged(look)["container_runtime"]["repair"]["files"]
    assert '"log-driver": "journald"' in file["text"]
    assert '"other=1"' in file["text"]
    assert "systemd" not in file["text"]
