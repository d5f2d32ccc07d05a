"""What NCCL used is read from its own log, and held against the machine type.

The logs of H200 are real. The lines for EFA, InfiniBand and RoCE are emulated: written after those
that NCCL and aws-ofi-nccl print.
"""

from __future__ import annotations

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.verify.collectives.expected import expected_transport
from vllm_ansible.verify.collectives.transport import transport
from vllm_ansible.verify.collectives.transport_verdict import (
    ExpectedTransport,
    inside_ways,
    problems,
)

H200 = accelerator("H200")
SWITCHED = ExpectedTransport("infiniband", None, inside_ways(H200), direct=True)


def log(*lines: str) -> list[str]:
    """Return lines as NCCL prints them on two hosts of two devices."""
    hosts = [
        f"lab{rank // 2 + 1}:90{rank}:91{rank} [{rank % 2}] NCCL INFO ncclCommInitRankConfig comm "
        f"0xab{rank} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId 60 commId "
        f"0xd2 - Init COMPLETE"
        for rank in range(4)
    ]
    return [*(f"lab1:900:910 [0] NCCL INFO {line}" for line in lines), *hosts]


EFA = log(
    "NET/OFI Initializing aws-ofi-nccl 1.16.2",
    "NET/OFI Selected provider is efa, fabric is efa (found 16 nics)",
    "Using network AWS Libfabric",
    "Channel 00/0 : 1[1] -> 2[0] [send] via NET/AWS Libfabric/3/GDRDMA",
    "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/AWS Libfabric/3/GDRDMA",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "16 coll channels, 16 collnet channels, 16 nvls channels, 32 p2p channels",
)
INFINIBAND = log(
    "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB [RO]; OOB eth0:192.0.2.2<0>",
    "Using network IB",
    "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/1(1)/GDRDMA/Shared",
    "Channel 00 : 0[60000] -> 1[70000] via P2P/IPC/read",
)


def test_p2p_between_all_devices_is_read_and_right(kept):
    found = transport(kept("h200-default.log").splitlines())
    assert found.versions == ("2.28.9+cuda13.0",)
    assert (found.ranks, found.nodes) == (4, 1)
    assert [name for name, _ in found.inside] == ["P2P/CUMEM"]
    assert found.across == ()
    assert found.fabric is None
    assert found.nvls_channels == 0
    assert problems(found, SWITCHED) == []


def test_a_network_that_nothing_uses_is_no_fault(kept):
    found = transport(kept("h200-default.log").splitlines())
    assert found.networks == ("Socket",)
    assert found.plugin_missing
    assert problems(found, ExpectedTransport("efa", 16, inside_ways(H200), direct=True)) == []


def test_shared_memory_instead_of_nvlink_is_a_failure(kept):
    found = transport(kept("h200-shm.log").splitlines())
    assert [name for name, _ in found.inside] == ["SHM/direct"]
    (problem,) = problems(found, SWITCHED, "lab1")
    assert problem.expected == "P2P"
    assert "NCCL_P2P_DISABLE=1" in problem.found
    assert "NCCL_P2P_DISABLE" in problem.fix
    assert problem.where == "lab1"


def test_shared_memory_is_right_between_cards_without_a_switch(kept):
    found = transport(kept("h200-shm.log").splitlines())
    for name in ("RTX-4090", "L40S", "H100-94"):
        assert (
            problems(found, ExpectedTransport("socket", None, inside_ways(accelerator(name)))) == []
        )
    assert inside_ways(accelerator("A100-80"), "NVIDIA A100 80GB PCIe") == ("P2P", "SHM")
    assert inside_ways(accelerator("A100-80"), "NVIDIA A100-SXM4-80GB") == ("P2P",)


def test_sockets_across_nodes_are_a_failure_where_there_is_a_fabric(kept):
    found = transport(kept("h200-sockets.log").splitlines())
    assert found.nodes == 2
    assert [name for name, _ in found.across] == ["NET/Socket"]
    assert [name for name, _ in found.inside] == ["P2P/CUMEM"]
    assert found.fabric == "socket"
    (problem,) = problems(found, SWITCHED)
    assert "InfiniBand" in problem.expected
    assert "NET/Socket" in problem.found
    assert "NCCL_NET=IB" in problem.fix


def test_sockets_are_right_on_plain_ethernet(kept):
    found = transport(kept("h200-sockets.log").splitlines())
    assert problems(found, expected_transport(None, accelerator("RTX-4090"))) == []


def test_a_missing_plugin_is_named_on_efa_only(kept):
    found = transport(kept("h200-sockets.log").splitlines())
    (problem,) = problems(found, expected_transport("p5en.48xlarge", H200))
    assert "libnccl-net.so was not found" in problem.found
    assert "aws-ofi-nccl" in problem.fix
    (problem,) = problems(found, SWITCHED)
    assert "libnccl-net.so" not in problem.found


def test_efa_with_all_its_cards_is_right():
    found = transport(EFA)
    assert (found.fabric, found.provider, found.nics, found.plugin) == ("efa", "efa", 16, "1.16.2")
    assert (found.direct, found.undirect, found.nvls_channels) == (1, 0, 16)
    assert problems(found, expected_transport("p5en.48xlarge", H200)) == []


def test_missing_cards_of_efa_are_a_failure():
    (problem,) = problems(transport(EFA), expected_transport("p5e.48xlarge", H200))
    assert problem.message == "NCCL uses 16 of 32 network cards"


def test_the_older_wording_of_the_provider_is_read():
    old = [line.replace("provider is efa, fabric is efa", "Provider is efa") for line in EFA]
    assert (transport(old).provider, transport(old).nics) == ("efa", 16)


def test_a_provider_over_tcp_is_a_failure():
    tcp = [line.replace("is efa, fabric is efa", "is tcp") for line in EFA]
    (problem,) = problems(transport(tcp), expected_transport("p5en.48xlarge", H200))
    assert "provider tcp" in problem.found


def test_a_name_of_the_network_is_told_whole():
    pinned = [*EFA, "a:1:2 [0] NCCL INFO NCCL_NET set by environment to AWS Libfabric."]
    assert dict(transport(pinned).settings)["NCCL_NET"] == "AWS Libfabric"


def test_infiniband_is_told_from_roce():
    found = transport(INFINIBAND)
    assert found.fabric == "infiniband"
    assert found.cards == ("mlx5_0:1/IB", "mlx5_3:1/IB")
    assert problems(found, ExpectedTransport("infiniband", 2, ("P2P",), direct=True)) == []
    roce = transport([line.replace(":1/IB", ":1/RoCE") for line in INFINIBAND])
    assert roce.fabric == "roce"
    assert len(problems(roce, ExpectedTransport("infiniband", 2, ("P2P",)))) == 1
    assert problems(roce, ExpectedTransport("roce", 2, ("P2P",), direct=True)) == []


def test_a_card_too_few_on_infiniband_is_a_failure():
    (problem,) = problems(transport(INFINIBAND), ExpectedTransport("infiniband", 8, ("P2P",)))
    assert "mlx5_0:1/IB" in problem.found
    assert "2 of 8" in problem.message


def test_nvidias_plugin_counts_as_infiniband():
    found = transport([line.replace("NET/IB/1(1)", "NET/IBext_v10/1") for line in INFINIBAND])
    assert found.fabric == "infiniband"


def test_channels_without_gpudirect_are_a_failure_where_it_is_expected():
    lines = [line.replace("/GDRDMA", "") for line in INFINIBAND]
    lines.append("lab1:900:910 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")
    (problem,) = problems(transport(lines), ExpectedTransport("infiniband", 2, ("P2P",), True))
    assert "1 of 1 channels" in problem.message
    assert problem.found == "disabled for mlx5_0"
    assert "nvidia-peermem" in problem.fix
    assert problems(transport(lines), ExpectedTransport("infiniband", 2, ("P2P",))) == []


@pytest.mark.parametrize(
    "line",
    [
        "NET/IB : GPU Direct RDMA Disabled for GPU 0 / HCA 5 (distance 7 > 4)",
        "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
    ],
)
def test_a_far_card_and_a_socket_have_no_gpudirect_to_lose(line):
    assert transport(log(line)).undirect_cards == ()


def test_one_channel_over_sockets_is_not_outvoted():
    lines = [*INFINIBAND] * 5
    lines += log("Channel 01/0 : 1[1] -> 2[0] [send] via NET/Socket/0")
    assert transport(lines).fabric == "socket"


def test_a_node_that_talks_to_itself_over_the_network_is_a_failure():
    lines = log("Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0", "NCCL_SHM_DISABLE set by")
    (problem,) = problems(transport(lines), ExpectedTransport("socket"))
    assert "inside a node" in problem.message
    assert "NCCL_SHM_DISABLE" in problem.fix


def test_so_is_a_single_host_that_does(kept):
    lines = [line for line in kept("h200-sockets.log").splitlines() if "NET/Socket/0" in line]
    lines.append("vm:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0")
    found = transport(lines)
    assert found.across == ()
    assert found.fabric is None
    (problem,) = problems(found, ExpectedTransport("socket"))
    assert "NET/Socket" in problem.message


def test_the_host_with_the_fewest_cards_counts():
    lines = [*EFA, "lab2:902:912 [0] NCCL INFO NET/OFI Selected Provider is efa (found 15 nics)"]
    assert transport(lines).nics == 15
    assert len(problems(transport(lines), expected_transport("p5en.48xlarge", H200))) == 1


def test_a_better_fabric_than_expected_is_no_fault():
    assert problems(transport(EFA), ExpectedTransport("socket")) == []


def test_lines_of_2_4_without_devices_are_read():
    found = transport(log("Ring 00 : 3 -> 10 [send] via NET/IB/0/GDRDMA"))
    assert found.across == (("NET/IB", 1),)


def test_a_log_without_channels_is_a_failure_and_not_a_pass():
    (problem,) = problems(transport(["lab1:1:1 [0] NCCL INFO Using network IB"]), SWITCHED)
    assert "NCCL_DEBUG=INFO" in problem.fix


def test_an_unknown_fabric_is_named_as_it_is():
    lines = [line.replace("NET/IB/1(1)", "NET/FasTrak/1") for line in INFINIBAND]
    (problem,) = problems(transport(lines), ExpectedTransport("infiniband", 2, ("P2P",)))
    assert "FasTrak" in problem.message


def test_what_is_expected_follows_the_machine_type_then_its_own_cards():
    assert expected_transport("p5.48xlarge", H200) == ExpectedTransport("efa", 32, ("P2P",), True)
    assert expected_transport("ND H100 v5", H200).fabric == "infiniband"
    assert expected_transport(None, H200, ["InfiniBand", "InfiniBand"]).fabric == "infiniband"
    assert expected_transport(None, H200, ["Ethernet"]).fabric == "roce"
    assert expected_transport("p9.1xlarge", H200, ["Unspecified"], efa=4) == ExpectedTransport(
        "efa", 4, ("P2P",), False
    )
    assert expected_transport("a desktop", None).fabric == "socket"
