"""What machines should give: published figures with sources, and the ring rule."""

import pytest

from vllm_ansible.accelerators.accelerator import accelerator, accelerators
from vllm_ansible.verify.collectives.expected import (
    NodeLinks,
    across_nodes,
    believable,
    cards_rate,
    figures,
    inside_node,
    machine_types,
    over_tcp,
)

H100, H200, A100 = accelerator("H100-80"), accelerator("H200"), accelerator("A100-80")


def test_every_figure_names_a_known_accelerator_and_a_source():
    for row in figures()["inside"]:
        assert row["accelerator"] in accelerators()
        assert row["source"]
    for machine in machine_types().values():
        assert machine["accelerator"] in accelerators()
        assert machine["devices"] == accelerator(machine["accelerator"]).devices_per_node


def test_one_node_is_held_against_its_own_published_figure():
    with_nvls = inside_node(H200, 8, True)
    assert (with_nvls.busbw, with_nvls.fail_below) == (473, pytest.approx(378.4))
    assert inside_node(H200, 8, False).busbw == 366
    assert inside_node(H100, 8, True).busbw == 480


def test_nothing_is_made_up_for_machines_without_a_figure():
    assert inside_node(accelerator("L40S"), 8, False) is None
    assert inside_node(H200, 3, True) is None


def test_a_vendors_threshold_raises_the_warning_or_stands_alone():
    assert inside_node(H100, 8, True, "ND H100 v5").warn_below == 460
    assert inside_node(H100, 8, True, "ND H100 v5").fail_below == pytest.approx(384)
    assert inside_node(accelerator("A100-40"), 8, True, "ND A100 v4").busbw == 228
    assert inside_node(H100, 4, True, "ND H100 v5").warn_below == pytest.approx(328.5)


def test_across_nodes_the_least_of_cards_and_ring_counts():
    assert across_nodes([NodeLinks(H100, 8, 400.0)] * 4).busbw == 370
    assert across_nodes([NodeLinks(H100, 8, 200.0)] * 4).busbw == 200
    assert across_nodes([NodeLinks(A100, 8, 200.0)] * 4).busbw == 200
    fast, slow = NodeLinks(H200, 8, 400.0), NodeLinks(H200, 8, 100.0)
    assert across_nodes([fast, slow, fast]).busbw == 100


def test_parts_with_fewer_links_are_not_held_against_the_whole_part():
    assert inside_node(H100, 8, True, driver_name="NVIDIA H800") is None
    assert across_nodes([NodeLinks(H100, 8, 400.0, "NVIDIA H800")] * 4) is None
    assert across_nodes([NodeLinks(H100, 8, 400.0, "NVIDIA H800", 160.0)] * 4).busbw == 160
    assert inside_node(H100, 8, True, driver_name="NVIDIA H100 80GB HBM3").busbw == 480


def test_cards_without_a_switch_need_a_measured_ring():
    assert across_nodes([NodeLinks(accelerator("L40S"), 8, 100.0)] * 4) is None
    assert across_nodes([NodeLinks(A100, 8, 200.0, "NVIDIA A100 80GB PCIe")] * 4) is None
    assert across_nodes([NodeLinks(accelerator("L40S"), 8, 100.0, "", 21.0)] * 4).busbw == 21
    assert across_nodes([NodeLinks(H100, 8, 400.0, "", 100.0)] * 4).busbw == 370


def test_devices_nobody_published_figures_of_have_none():
    assert across_nodes([NodeLinks(accelerator("S60"), 8, 200.0)] * 4) is None
    assert across_nodes([NodeLinks(accelerator("cpu"), 1, 1.25)] * 2) is None


def test_two_nodes_of_several_devices_are_judged_as_a_ring():
    assert across_nodes([NodeLinks(H100, 8, 400.0)] * 2).ring_only
    assert not across_nodes([NodeLinks(H100, 8, 400.0)] * 3).ring_only
    assert not across_nodes([NodeLinks(accelerator("GH200-96"), 1, 50.0)] * 2).ring_only


def test_the_rule_passes_every_published_cluster():
    for row in figures()["published_across"]:
        rate = float(row["node_rate"])
        node = NodeLinks(accelerator(row["accelerator"]), row["devices"], rate)
        expected = across_nodes([node] * row["nodes"])
        assert row["busbw"] >= expected.fail_below, row
        assert expected.ring_only == (row["nodes"] == 2 and row["devices"] > 1)


def test_cards_of_a_machine_type_are_counted_in_gigabytes():
    assert cards_rate("p5.48xlarge", H100, 8) == 400
    assert cards_rate("p4de.24xlarge", A100, 8) == 50
    assert cards_rate(None, H200, 4) == 200


@pytest.mark.parametrize(
    ("speed", "driver", "physical", "rate"),
    [
        (10000, "ixgbe", True, 1.25),
        (1000, "e1000e", True, 0.125),
        (10000, "veth", True, None),
        (10000, "vmxnet3", True, None),
        (10000, None, False, None),
        (-1, "virtio_net", True, None),
        (None, "ena", True, None),
        (0, "ixgbe", True, None),
    ],
)
def test_a_virtual_interface_is_not_believed(speed, driver, physical, rate):
    assert believable(speed, driver, physical) == rate


def test_tcp_gives_what_ethernet_leaves_of_a_link_that_processors_can_fill():
    assert over_tcp(0.125).busbw == pytest.approx(0.1175)
    assert over_tcp(0.125).fail_below == pytest.approx(0.1175 * 0.65)
    assert over_tcp(3.125) is None
    assert over_tcp(None) is None
