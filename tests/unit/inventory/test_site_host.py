from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.inventory.look import HostLook
from vllm_ansible.inventory.site_host import RUN_DIR_BYTES, Wishes, resolve_hosts
from vllm_ansible.problem import PlanError


def address(text: str, interface: str = "eth0", kind: str = "physical") -> dict[str, Any]:
    net = ".".join(text.split(".")[:3])
    return {"interface": interface, "address": text, "network": f"{net}.0/24", "kind": kind}


LOOPBACK = {"interface": "lo", "address": "127.0.0.1", "network": "127.0.0.0/8", "kind": "loopback"}


def look(name: str, *addresses: dict[str, Any], **more: Any) -> HostLook:
    found = {
        "uid": 1000,
        "user": "ada",
        "home": "/home/ada",
        "sudo": False,
        "pid1": "systemd",
        "architecture": "x86_64",
        "distribution": "debian",
        "distribution_version": "12",
        "python": "3.11.2",
        "cores": 4,
        "memory_bytes": 2**33,
        "disk_free": {"root": 2**33, "none": 2**30},
        "boot_id": "b",
        "accelerators": {"kind": "cpu", "count": 1, "pci": []},
        "addresses": [LOOPBACK, *addresses],
    }
    return HostLook.read(name, {**found, **more})


def resolve(*looks: HostLook, local: bool = False, **wishes: Any) -> dict[str, dict[str, Any]]:
    wish = Wishes("r1", **wishes)
    return resolve_hosts(looks, {item.name: wish for item in looks}, local)


ONE = look("n1", address("10.0.0.1"))


def test_the_only_common_network_is_the_data_plane() -> None:
    facts = resolve(ONE, look("n2", address("10.0.0.2", "ens3"), address("10.9.0.2", "ens4")))
    assert [(f["address"], f["interface"]) for f in facts.values()] == [
        ("10.0.0.1", "eth0"),
        ("10.0.0.2", "ens3"),
    ]


def test_several_common_networks_are_not_guessed_between() -> None:
    looks = [look(f"n{i}", address(f"10.0.0.{i}"), address(f"10.9.0.{i}", "eth1")) for i in (1, 2)]
    with pytest.raises(PlanError, match=r"10\.0\.0\.0/24, 10\.9\.0\.0/24.*default route"):
        resolve(*looks)
    facts = resolve(*looks, data_plane_network="10.9.0.0/24")
    assert [f["address"] for f in facts.values()] == ["10.9.0.1", "10.9.0.2"]
    facts = resolve(*looks, data_plane_interface="eth0")
    assert [f["address"] for f in facts.values()] == ["10.0.0.1", "10.0.0.2"]


def test_a_bridge_is_no_way_out_of_a_host() -> None:
    docker = address("172.17.0.1", "docker0", "bridge")
    facts = resolve(*(look(f"n{i}", address(f"10.0.0.{i}"), docker) for i in (1, 2)))
    assert facts["n2"]["interface"] == "eth0"


def test_this_machine_alone_needs_no_network() -> None:
    facts = resolve(ONE, local=True)
    assert (facts["n1"]["address"], facts["n1"]["interface"]) == ("127.0.0.1", "lo")


@pytest.mark.parametrize(
    ("looks", "wishes", "words"),
    [
        ((ONE, look("n2", address("10.7.0.2"))), {}, "no network in common"),
        ((ONE, look("n2", address("10.0.0.1"))), {}, "n1 and n2 both have 10.0.0.1"),
        ((ONE,), {"data_plane_network": "10.5.0.0/16"}, "no addresses in 10.5.0.0/16"),
        ((ONE,), {"data_plane_interface": "ib0"}, "no addresses on interface ib0"),
        ((look("n1", address("10.0.0.1"), distribution="arch"),), {}, "supported are ubuntu"),
        ((look("n1", address("10.0.0.1"), architecture="riscv64"),), {}, "on riscv64"),
        ((ONE,), {"privileges": "root"}, "ada is not root"),
        ((ONE,), {"supervisor": "systemd"}, "privileges are none"),
        ((ONE,), {"accelerator": "nvidia"}, "0 usable nvidia"),
        (
            (
                look(
                    "n1",
                    address("10.0.0.1"),
                    accelerators={"kind": "nvidia", "count": 0, "pci": ["a", "b"]},
                ),
            ),
            {},
            "2 of 2 on the PCI bus do not answer",
        ),
    ],
)
def test_a_host_that_cannot_serve_is_refused_in_one_sentence(
    looks: tuple[HostLook, ...], wishes: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError) as refusal:
        resolve(*looks, **wishes)
    (problem,) = refusal.value.problems
    assert words in problem.sentence()
    assert problem.expected
    assert problem.found
    assert problem.fix


def test_every_host_that_is_wrong_is_named_at_once() -> None:
    wrong = [look(f"n{i}", address(f"10.0.0.{i}"), distribution="arch") for i in (1, 2)]
    with pytest.raises(PlanError) as refusal:
        resolve(*wrong)
    assert len(refusal.value.problems) == 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            {"uid": 0, "user": "root"},
            ("systemd", "root", False, "vllm-r1", "/opt/vllm-ansible/r1", "/run/vllm-r1"),
        ),
        (
            {"sudo": True},
            ("systemd", "root", True, "vllm-r1", "/opt/vllm-ansible/r1", "/run/vllm-r1"),
        ),
        (
            {"uid": 0, "pid1": "tini"},
            ("supervisord", "root", False, "vllm-r1", "/opt/vllm-ansible/r1", "/run/vllm-r1"),
        ),
        (
            {},
            (
                "supervisord",
                "none",
                False,
                "ada",
                "/home/ada/.local/share/vllm-ansible/r1",
                "/tmp/vllm-r1-1000",  # noqa: S108 the name is what is tested
            ),
        ),
    ],
)
def test_rights_decide_how_and_where_things_run(
    found: dict[str, Any], expected: tuple[object, ...]
) -> None:
    facts = resolve(look("n1", address("10.0.0.1"), **found))["n1"]
    names = ("supervisor", "privileges", "become", "service_user", "cluster_dir", "run_dir")
    assert tuple(facts[name] for name in names) == expected


def test_the_inventory_has_the_last_word_on_paths() -> None:
    facts = resolve(ONE, cluster_dir="~/c/", models_dir="/big")["n1"]
    assert (facts["cluster_dir"], facts["models_dir"]) == ("/home/ada/c", "/big")


def test_a_rank_of_a_cpu_host_counts_as_an_accelerator() -> None:
    assert resolve(ONE)["n1"]["accelerator_count"] == 1
    assert resolve(ONE, accelerator_count=3)["n1"]["accelerator_count"] == 3


def test_the_longest_names_leave_room_for_rays_sockets() -> None:
    longest = look("n1", address("10.0.0.1"), uid=4_294_967)
    facts = resolve_hosts([longest], {"n1": Wishes("a" * 16)}, False)
    session = "/127/session_2026-12-31_23-59-59_123456_4194304/sockets/plasma_store"
    assert len(facts["n1"]["run_dir"] + session) <= 107
    with pytest.raises(PlanError, match=f"at most {RUN_DIR_BYTES}|characters long"):
        resolve_hosts([longest], {"n1": Wishes("a" * 40)}, False)


def test_wishes_default_to_what_the_role_documents() -> None:
    root = Path(__file__).parents[3]
    defaults = {"driver_modes": {}, "driver_mended": {}}
    for role in ("site", "system"):
        defaults |= yaml.safe_load((root / "roles" / role / "defaults/main.yml").read_text())
    wishes = Wishes("")
    for field in fields(Wishes):
        if field.name != "cluster_name":
            assert getattr(wishes, field.name) == defaults[field.name], field.name


def test_enflame_devices_that_answer_are_taken_as_they_are() -> None:
    card = {"index": 0, "name": "S60", "memory_bytes": 42976 << 20}
    found = {"kind": "enflame", "count": 8, "pci": ["a"] * 8, "devices": [card] * 8}
    facts = resolve(look("n1", address("10.0.0.1"), accelerators=found))["n1"]
    assert (facts["accelerator"], facts["accelerator_count"]) == ("enflame", 8)
    assert (facts["accelerator_name"], facts["accelerator_memory_bytes"]) == ("S60", 42976 << 20)


def test_the_disk_that_counts_is_the_one_that_will_hold_the_cluster() -> None:
    (facts,) = resolve(ONE, local=True).values()
    assert facts["cluster_dir"].startswith("/home/ada/") and facts["disk_free_bytes"] == 2**30
    (facts,) = resolve(look("n1", address("10.0.0.1"), uid=0), local=True).values()
    assert facts["cluster_dir"].startswith("/opt/") and facts["disk_free_bytes"] == 2**33


def refusal(host: HostLook, wish: Wishes, driver_follows: bool = False) -> Any:
    with pytest.raises(PlanError) as refused:
        resolve_hosts((host,), {"n1": wish}, False, driver_follows)
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize("kind", ["nvidia", "enflame"])
def test_a_silent_device_waits_for_a_driver_that_is_to_be_managed(kind: str) -> None:
    silent = {"kind": kind, "count": 0, "pci": ["a", "b"]}
    host = look("n1", address("10.0.0.1"), accelerators=silent)
    assert f"set {kind}_driver_mode: manage" in refusal(host, Wishes("demo")).fix
    wish = replace(Wishes("demo"), driver_modes={f"{kind}_driver": "manage"})
    assert resolve_hosts((host,), {"n1": wish}, False)["n1"]["accelerator"] == kind
    mended = replace(wish, driver_mended={f"{kind}_driver": "True"})
    assert "2 of 2 on the PCI bus do not answer" in refusal(host, mended, True).sentence()


@pytest.mark.parametrize("kind", ["auto", "enflame"])
@pytest.mark.parametrize("count", [0, 7])
def test_a_silent_enflame_device_waits_for_the_role_that_judges_its_driver(
    kind: str, count: int
) -> None:
    silent = {"kind": "enflame", "count": count, "pci": list("abcdefgh")}
    host = look("n1", address("10.0.0.1"), accelerators=silent)
    for mode in ("auto", "check", "manage"):
        wish = Wishes("demo", kind, 8, driver_modes={"enflame_driver": mode})
        assert resolve_hosts((host,), {"n1": wish}, False, True)["n1"]["accelerator"] == "enflame"
        refusal(host, replace(wish, driver_mended={"enflame_driver": "True"}), True)
    # Nothing would judge it later: the mode says so, or the stage that is played.
    for problem in (
        refusal(host, Wishes("demo", kind, 8, driver_modes={"enflame_driver": "skip"}), True),
        refusal(host, Wishes("demo", kind, 8)),
    ):
        told = f"{count} usable enflame accelerators; {8 - count} of 8 on the PCI bus do not answer"
        assert told in problem.sentence()
        assert ("accelerator_count: 7 for n1" in problem.fix) is (count == 7)
        assert ("install the driver" in problem.fix) is (count == 0)
    # A card that fell off the bus is nothing that the role would see.
    gone = look("n1", address("10.0.0.1"), accelerators={**silent, "pci": ["a"] * count})
    assert "correct accelerator" in refusal(gone, Wishes("demo", "enflame", 8), True).fix


def test_the_numbers_of_enflame_devices_are_kept_as_they_answer() -> None:
    numbers = [0, 1, 2, 4, 5, 6, 7]
    found = {"count": 7, "pci": ["a"] * 8, "devices": [{"index": one} for one in numbers]}
    kinds = {"enflame": tuple(numbers), "nvidia": ()}
    for kind, expected in kinds.items():
        host = look("n1", address("10.0.0.1"), accelerators={"kind": kind, **found})
        facts = resolve(host, accelerator_count=7)["n1"]
        assert facts["accelerator_indices"] == expected


@pytest.mark.parametrize("kind", ["nvidia", "enflame"])
def test_a_device_that_fell_silent_is_refused_until_a_count_accepts_it(kind: str) -> None:
    seven = {"kind": kind, "count": 7, "pci": list("abcdefgh")}
    host = look("n1", address("10.0.0.1"), accelerators=seven)
    with pytest.raises(PlanError) as refused:
        resolve(host)
    (problem,) = refused.value.problems
    told = f"n1 has 7 usable {kind} accelerators; 1 of 8 on the PCI bus do not answer"
    assert (problem.message, problem.expected) == (told, f"at least 8 {kind}")
    assert problem.fix.endswith("set accelerator_count: 7 for n1")
    assert resolve(host, accelerator_count=7)["n1"]["accelerator_count"] == 7
    # A container sees its machine's bus, and was not given all of it.
    lent = look("n1", address("10.0.0.1"), accelerators={**seven, "withheld": 1})
    assert resolve(lent)["n1"]["accelerator_count"] == 7


def test_who_stops_and_looks_is_not_refused_for_a_silent_device() -> None:
    gone = {"kind": "nvidia", "count": 0, "pci": list("abcdefgh")}
    host = look("n1", address("10.0.0.1"), accelerators=gone)
    found = resolve_hosts([host], {"n1": Wishes("r1")}, False, accelerators_judged=False)
    assert found["n1"]["accelerator"] == "nvidia"
