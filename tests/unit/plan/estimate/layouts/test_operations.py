"""Single operations of vLLM that others timed, beside the terms of the throughput model."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.machines import Fabric
from vllm_ansible.plan.estimate.throughput.collectives import links
from vllm_ansible.plan.estimate.throughput.constants import (
    BAND,
    EXPERTS_KERNEL,
    EXPERTS_KERNELS,
    OWN_MOST,
)
from vllm_ansible.plan.estimate.throughput.step import (
    Pass,
    Rank,
    attention_share,
    cache_time,
    experts_time,
    hidden_time,
    kernels_time,
    weights_time,
)
from vllm_ansible.plan.estimate.throughput.work import Launched, LayerWork

TESTS = Path(__file__).parents[4]
TABLE = TESTS / "data" / "public" / "operations.csv"
REDUCED = TESTS / "data" / "public" / "all-reduce.csv"
DOCS = TESTS.parent / "docs" / "planner.md"
BITS = {"bfloat16": 16, "fp8": 8, "fp8_block": 8, "int4_wo": 4, "w4a16_mxfp4": 4, "nvfp4": 4}
# Of experts' operations, by device and type, how many rows lie within x/÷ 1.5: what is reached.
# Not met: Marlin's kernels of 0.19, three times as slow as those of 0.24 that the term is of, and
# B200, which chooses among several kernels for each type. Of FP8 RTX PRO 6000's table has another
# kernel than blocks and scales per channel run in.
INSIDE = {
    "A100-80 bfloat16": 29,
    "A100-80 int4_wo": 20,
    "B200 bfloat16": 32,
    "B200 fp8": 34,
    "B200 fp8_block": 32,
    "B200 nvfp4": 31,
    "B200 w4a16_mxfp4": 7,
    "H100 bfloat16": 24,
    "H100 fp8": 24,
    "H100 fp8_block": 24,
    "H100 w4a16_mxfp4": 12,
    "H200 bfloat16": 56,
    "H200 fp8": 56,
    "H200 fp8_block": 48,
    "H200 int4_wo": 0,
    "H200 w4a16_mxfp4": 16,
    "RTX-PRO-6000 bfloat16": 22,
    "RTX-PRO-6000 fp8": 9,
    "RTX-PRO-6000 int4_wo": 11,
    "RTX-PRO-6000 nvfp4": 44,
    "RTX-PRO-6000 w4a16_mxfp4": 22,
}
TOLD = re.compile(r"(\d+) of (\d+) rows of experts")


def rows(operation: str) -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["operation"] == operation]


def rank(name: str) -> Rank:
    device = accelerator(name)
    alone = links(device, Fabric(1.0), 1, 1)
    return Rank(device, alone, alone, expert=False, eager=False)


def layer(row: dict[str, str]) -> LayerWork:
    """Return a layer of these experts and nothing else."""
    number = {name: float(row[name] or 0) for name in ("hidden", "width", "chosen", "experts")}
    bits = BITS.get(row["type"], 16)
    products = 3 * number["hidden"] * number["width"]
    scales = 1.0625 if bits == 4 else 1.0
    return LayerWork(
        dense_bytes=0.0,
        products=0.0,
        expert_bytes=products * bits / 8 * scales,
        expert_products=products,
        experts=number["experts"],
        experts_all=int(number["experts"]),
        experts_per_token=int(number["chosen"]),
        cache_bytes=0.0,
        window=0,
        state_bytes=0.0,
        attention_products=0.0,
        prefill_products=0.0,
        head_size=int(row["head_size"] or 128),
        mxfp4=row["type"] == "w4a16_mxfp4",
        triton="oaitriton" in row["kernel"] or row["kernel"] == "vllm_mxfp4_moe",
        cutlass="flashinfer_cutlass" in row["kernel"],
        integers=row["type"] == "int4_wo",
        chosen=0,
        chosen_bytes=0.0,
        index_products=0.0,
        kernels=EXPERTS_KERNELS,
        collectives=0,
        dense_bits=16,
        expert_bits=bits,
    )


def test_operations_over_experts_are_timed_as_others_measured_them() -> None:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows("experts"):
        kind, tokens = layer(row), float(row["tokens"])
        read, computed = experts_time(
            kind, int(row["hidden"]), Pass(tokens, 0.0, tokens), rank(row["device"])
        )
        planned = read + computed + EXPERTS_KERNELS * EXPERTS_KERNEL
        found[f"{row['device']} {row['type']}"].append(planned / float(row["ms"]) * 1e3)
    for name, times in sorted(found.items()):
        inside = sum(1 / BAND <= one <= BAND for one in times)
        print(f"{name}: {inside} of {len(times)}, median {median(times):.2f}")
    counted = {name: sum(1 / BAND <= one <= BAND for one in times) for name, times in found.items()}
    assert all(counted[name] >= least for name, least in INSIDE.items())
    assert set(counted) == set(INSIDE)
    told = TOLD.search(DOCS.read_text(encoding="utf-8"))
    assert told and told.groups() == (
        str(sum(counted.values())),
        str(sum(len(times) for times in found.values())),
    )


def test_attention_over_a_prompt_grows_with_its_length() -> None:
    """A share that is one for all lengths took a prompt of 1,024 tokens for three times as fast."""
    apart = []
    for row in rows("attention"):
        heads, size, length = (int(row[name]) for name in ("heads", "head_size", "length"))
        tokens, device = int(row["tokens"]), accelerator(row["device"])
        products = 2.0 * heads * size * tokens * length / 2
        load = Pass(0.0, 0.0, float(tokens), float(tokens), length / 2)
        planned = 2 * products / (device.flops["bf16"] * attention_share(layer(row), load, device))
        apart.append(planned / float(row["ms"]) * 1e3)
    print([f"{one:.2f}" for one in apart])
    assert len(apart) == 35
    assert all(1 / BAND <= one <= BAND for one in apart)
    assert 1 / 1.15 < median(apart) < 1.15


def test_products_are_timed_as_others_measured_them() -> None:
    """On an A100 those of 128 rows were planned to take two thirds of their time."""
    apart: dict[str, list[float]] = defaultdict(list)
    for row in rows("product"):
        size = float(row["hidden"]) * float(row["width"])
        kind = replace(layer(row), dense_bytes=2 * size, products=size)
        tokens = float(row["tokens"])
        read, computed = weights_time(kind, Pass(tokens, 0.0, tokens), rank(row["device"]))
        planned = hidden_time(read, computed, accelerator(row["device"]))
        planned += kernels_time(replace(kind, launched=Launched(1)), accelerator(row["device"]))
        apart[row["device"]].append(planned / float(row["ms"]) * 1e3)
    for device, times in apart.items():
        inside = sum(1 / BAND <= one <= BAND for one in times)
        print(f"{device}: {inside} of {len(times)}, {min(times):.2f} to {max(times):.2f}")
        assert inside >= 0.97 * len(times)
        assert 1 / 1.2 < median(times) < 1.2
    assert len(apart) == 5


def test_the_cache_of_decoding_sequences_is_read_as_others_measured_it() -> None:
    apart: dict[str, list[float]] = defaultdict(list)
    for row in rows("cache"):
        heads, size, length = (int(row[name]) for name in ("heads", "head_size", "length"))
        kind = replace(layer(row), cache_bytes=4.0 * heads * size, items=float(heads))
        batch = float(row["tokens"])
        load = Pass(batch, float(length), batch)
        called = replace(kind, launched=Launched(attention=1))
        planned = cache_time(kind, load, rank(row["device"]))
        planned += kernels_time(called, accelerator(row["device"]))
        apart[row["device"]].append(planned / float(row["ms"]) * 1e3)
    for device, times in apart.items():
        inside = sum(1 / BAND <= one <= BAND for one in times)
        print(f"{device}: {inside} of {len(times)}, {min(times):.2f} to {max(times):.2f}")
        # Without what a call takes whatever it reads, 58 of 68 were, small ones too fast.
        assert inside == len(times)
        assert 1 / 1.1 < median(times) < 1.1
    assert len(apart) == 3


def test_small_sums_over_ranks_are_those_of_vllms_own_kernel() -> None:
    """NCCL's 12 to 25 us were planned where vLLM's kernel takes 4 to 8."""
    apart: dict[str, list[float]] = defaultdict(list)
    with REDUCED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found = links(accelerator(row["device"]), Fabric(1.0), int(row["ranks"]), 1)
            size = int(row["bytes"])
            assert (found.all_reduce(size) != found.by_library(size)) == (size < OWN_MOST)
            planned = found.all_reduce(size) * 1e6 / float(row["us"])
            apart[f"{row['device']} {'own' if size < OWN_MOST else 'NCCL'}"].append(planned)
    counted = {
        name: (sum(1 / BAND <= one <= BAND for one in times), len(times))
        for name, times in apart.items()
    }
    print(counted)
    for name in ("A100-80 own", "H100-80 own", "H200 own", "L40S own", "H100-80 NCCL", "H200 NCCL"):
        inside, all_ = counted[name]
        assert inside == all_
    inside, all_ = counted["B200 own"]
    assert inside >= 0.8 * all_


def test_a_library_reduces_where_vllms_own_kernel_does_not() -> None:
    def own(name: str, ranks: int, nodes: int = 1) -> bool:
        return links(accelerator(name), Fabric(1.0), ranks, nodes).link > 0

    assert own("H100", 8) and own("L40S", 2) and own("MI300X", 8)
    # Three ranks, several nodes, four over PCIe, and a library of another maker.
    assert not (own("H100", 3) or own("H100", 8, 2) or own("L40S", 4) or own("S60", 8))
