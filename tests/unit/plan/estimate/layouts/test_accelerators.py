"""Accelerators by every name they have, and lines of machines."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator, accelerators
from vllm_ansible.accelerators.instances import efa_cards, instance_type, instance_types
from vllm_ansible.accelerators.machines import machines
from vllm_ansible.problem import PlanError

GIB = 2**30
WANTED = {
    *("H100-80", "H100-94", "H100-96", "GH200-96", "GH200-144", "H200", "B200", "A100-40"),
    *("A100-80", "L40S", "RTX-3090", "RTX-4090", "RTX-5090", "MI300X", "H20", "S60", "cpu"),
    *("GB200", "GB300", "B300", "MI325X", "MI355X", "RTX-PRO-6000", "L40", "A10", "L4"),
    *("H100-PCIe", "RTX-6000-Ada", "RTX-A6000", "RTX-A5000", "W7900"),
}


def test_every_accelerator_is_there_with_where_its_numbers_come_from() -> None:
    assert set(accelerators()) >= WANTED
    for one in accelerators().values():
        assert one.sources
        assert one.memory_source
        assert all(words.endswith(".") for words in one.assumed)


def test_the_driver_reports_less_than_the_name_says() -> None:
    for one in accelerators().values():
        size = one.name.rpartition("-")[2]
        if size.isdigit() and one.name.startswith(("H", "GH", "A")):
            assert int(size) * 0.9 * 1e9 < one.memory_bytes < int(size) * GIB


def test_no_name_means_two_accelerators() -> None:
    names = [
        word.lower()
        for one in accelerators().values()
        for word in {one.name, *one.aliases, *one.driver_names}
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("H100", "H100-80"),
        ("h100-80", "H100-80"),
        ("NVIDIA H100 80GB HBM3", "H100-80"),
        ("NVIDIA GH200 480GB", "GH200-96"),
        ("NVIDIA GH200 144G HBM3e", "GH200-144"),
        ("AMD Instinct MI300X", "MI300X"),
        ("rtx 3090", "RTX-3090"),
        ("NVIDIA GeForce RTX 5090", "RTX-5090"),
        ("Enflame S60", "S60"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("h100-nvl", "H100-94"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("a5000", "RTX-A5000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("AMD Radeon PRO W7900 Dual Slot", "W7900"),
    ],
)
def test_a_device_is_found_by_short_and_by_driver_name(said: str, meant: str) -> None:
    assert accelerator(said).name == meant


def test_devices_multiply_only_what_they_can() -> None:
    assert accelerator("A100-80").runs == ("bf16",)
    assert accelerator("H100").runs == ("bf16", "fp8")
    assert accelerator("B200").runs == ("bf16", "fp8", "fp4")


def test_a_workstation_card_has_half_of_what_its_datasheet_says_with_sparsity() -> None:
    """The last column is what the makers print; AMD's is dense."""
    for name, rate, printed in (
        ("RTX-A6000", "bf16", 309.7e12 / 2),
        ("RTX-A5000", "bf16", 222.2e12 / 2),
        ("RTX-6000-Ada", "fp8", 1457e12 / 2),
        ("RTX-6000-Ada", "bf16", 1457e12 / 4),
        ("W7900", "bf16", 122.6e12),
    ):
        assert accelerator(name).flops[rate] == pytest.approx(printed, rel=0.002)
    assert accelerator("W7900").runs == accelerator("RTX-A6000").runs == ("bf16",)


def test_the_next_device_of_a_line_is_no_smaller() -> None:
    """Newer devices of one line hold more and multiply no less."""
    for older, newer in (("H100-80", "H200"), ("B200", "B300"), ("GB200", "GB300"), ("L4", "L40")):
        before, after = accelerator(older), accelerator(newer)
        assert after.memory_bytes > before.memory_bytes and after.bandwidth >= before.bandwidth
        assert all(after.flops[name] >= before.flops[name] for name in before.flops)


def test_an_inventory_adds_its_own() -> None:
    own = {"lab": {"like": "H200", "memory_bytes": 10 * GIB}}
    found = accelerator("lab", own)
    assert (found.memory_bytes, found.bandwidth) == (10 * GIB, accelerator("H200").bandwidth)
    assert found.sources == ("the inventory",)
    assert machines("2x4 lab", own).devices == 8


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"memory": 1}, "has no field 'memory'"),
        ({"memory_bytes": 1}, "needs memory_bytes, bandwidth and flops"),
        ({"like": "H200", "bandwidth": 0}, "bandwidth is 0"),
        ({"like": "H200", "memory_bytes": -1}, "memory_bytes is -1"),
        ({"like": "H2000"}, "did you mean H200?"),
        ({"like": "H200", "memory_bytes": inf}, "memory_bytes is inf, and a number above 0"),
        ({"like": "H200", "flops": 9e14}, "flops is 9"),
        ({"like": "H200", "flops": {"fp8": 9e14}}, "number above 0 for bf16"),
        ({"like": "H200", "flops": {"bf16": "many"}}, "number above 0 for bf16"),
        ({"like": "H200", "bandwidth": "4.8e12"}, "an exponent needs a point and a sign"),
        ({"like": "H200", "capability": "9.0"}, "capability is '9.0'"),
        ({"like": "H200", "kind": {}}, "kind is {}"),
        ({"like": "H200", "kind": "nvidea"}, "kind is 'nvidea', and one of "),
        ({"like": "H200", "peer_to_peer": "no"}, "peer_to_peer is 'no', and true or false"),
    ],
)
def test_an_accelerator_that_makes_no_sense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("?", r"\?")) as refusal:
        accelerator("own", {"own": fields})
    assert len(refusal.value.problems) == 1


def test_a_line_names_nodes_devices_and_network() -> None:
    found = machines("4x8 H100-80 @ 8x400Gb")
    assert (len(found.nodes), found.devices, found.line()) == (4, 32, "4x8 H100-80")
    assert (found.fabric.node_rate, found.fabric.tcp, found.fabric.assumed) == (400e9, False, False)
    assert machines("2x1 GH200 @ 100Gb tcp").fabric.tcp
    assert machines("2x1 GH200 @ 25GB").fabric.node_rate == 25e9
    assert machines("2x8 H200").fabric.assumed
    assert machines("1x8 H100 + 2x4 A100").line() == "1x8 H100-80 + 2x4 A100-80"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("4x8 H900", "accelerator 'H900' is not known"),
        ("0x8 H200", "0 nodes of 8 devices"),
        ("2x-4 H200", "2 nodes of -4 devices"),
        ("99999x8 H200", "at most"),
        ("eight H200", "cannot be read"),
        ("", "cannot be read"),
        ("2x8 H200 @ fast", "cannot be read at 'fast'"),
        ("2x8 H200 @ 0Gb", "cannot be read"),
        ("2x8 H200 +", "cannot be read"),
        ("0x p5.48xlarge", "0 nodes of 8 devices"),
        ("2x p5.48xlarg", "did you mean p5.48xlarge?"),
        ("2x p9.24xlarge", "type of machine 'p9.24xlarge' is not known"),
        ("2x trn2.48xlarge", "trn2.48xlarge have Trainium, for which there is no engine here"),
        ("1x inf2.xlarge", "have Inferentia"),
        ("p5.48xlarge", "cannot be read"),
    ],
)
def test_a_line_that_names_no_machines_is_refused_in_one_sentence(line: str, said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("?", r"\?")) as refusal:
        machines(line)
    assert len(refusal.value.problems) == 1


@pytest.mark.parametrize(
    ("line", "meant", "rate", "tcp"),
    [
        ("2x p5.48xlarge", "2x8 H100-80", 400e9, False),
        ("2 x P5.48xlarge", "2x8 H100-80", 400e9, False),
        ("1x p5e.48xlarge", "1x8 H200", 400e9, False),
        ("2x p5en.48xlarge", "2x8 H200", 400e9, False),
        ("2x p4d.24xlarge", "2x8 A100-40", 50e9, False),
        ("2x p4de.24xlarge", "2x8 A100-80", 50e9, False),
        ("2x p6-b200.48xlarge", "2x8 B200", 400e9, False),
        ("2x p6-b300.48xlarge", "2x8 B300", 800e9, False),
        ("2x g6e.48xlarge", "2x8 L40S", 50e9, True),
        ("1x g6e.xlarge", "1x1 L40S", 0.3125e9, True),
        ("1x p5.48xlarge + 1x p4de.24xlarge", "1x8 H100-80 + 1x8 A100-80", 50e9, False),
        ("2x p5.48xlarge @ 100Gb tcp", "2x8 H100-80", 12.5e9, True),
    ],
)
def test_a_type_of_instance_stands_for_its_devices_and_its_network(
    line: str, meant: str, rate: float, tcp: bool
) -> None:
    found = machines(line)
    assert (found.line(), found.fabric.node_rate, found.fabric.tcp) == (meant, rate, tcp)
    assert not found.fabric.assumed


def test_beside_machines_without_a_type_the_network_is_the_usual_one() -> None:
    assert machines("1x p5.48xlarge + 1x8 H100-80").fabric.assumed


def test_every_type_of_instance_has_a_known_accelerator() -> None:
    for one in instance_types().values():
        assert accelerator(one.accelerator).devices_per_node >= one.devices
        assert instance_type(one.name.upper()) is one


def test_only_types_that_are_sold_for_their_cards_must_have_them() -> None:
    cards = efa_cards()
    assert (cards["p5.48xlarge"], cards["p5en.48xlarge"], cards["p6-b300.48xlarge"]) == (32, 16, 16)
    assert not [name for name in cards if name.startswith("g6e")]


def test_an_inventory_that_describes_the_accelerator_of_a_type_is_believed() -> None:
    own = {"H100-80": {"like": "H100-80", "memory_bytes": 10 * GIB}}
    assert machines("1x p5.48xlarge", own).nodes[0].accelerator.memory_bytes == 10 * GIB
