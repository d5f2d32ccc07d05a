"""Deployments whose figures were written down before the planner was asked about them.

Nothing was fitted to them; what they showed to be wrong was mended by what the engine does.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path
from statistics import median

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.drafts import with_drafts
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import sites
from vllm_ansible.plan.estimate.layouts.request import Request as Asked
from vllm_ansible.plan.estimate.memory.blocks import capacity
from vllm_ansible.plan.estimate.memory.budget import Budget, budget, default_block_size
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.plan.estimate.throughput.constants import BAND

from .deployments import (
    FACTS,
    GIB,
    Row,
    accelerator_of,
    kernels_of,
    memory_of,
    model,
    model_of,
    rows,
)

TABLE, RATES = FACTS / "held-out.csv", FACTS / "held-out-rates.csv"
DOCS = Path(__file__).parents[5] / "docs" / "planner.md"
# What a row without a release is taken for: the newest one that prints its lines.
UNNAMED = "0.14.1"
LINE = re.compile(
    r"^\| (weights within 2 %|cache in the band|rates in the band) .*\| (\d+) of (\d+) \|$", re.M
)


def planned(row: Row) -> tuple[Model, Budget | None]:
    """Return the model of a row, and its memory where the row says on what it ran."""
    found, memory, device = model_of(row), memory_of(row), accelerator_of(row)
    assert found is not None, row.name
    found = with_drafts(found) if row.text["drafts"] else found
    utilization = row.number("gpu_mem_util")
    if memory is None or (utilization is None and row.version is None):
        return found, None
    return found, budget(
        found,
        row.split(),
        memory,
        utilization=utilization,
        max_model_len=row.whole("max_model_len"),
        max_num_batched_tokens=row.whole("max_num_batched_tokens"),
        max_num_seqs=row.whole("max_num_seqs"),
        kv_cache_dtype=row.text["kv_cache_dtype"] or "auto",
        engine_version=row.version or UNNAMED,
        accelerator_kind=kernels_of(row).kind,
        device=device.name if device else "",
        capability=kernels_of(row).capability,
    )


@lru_cache(maxsize=1)
def of_weights() -> dict[str, float]:
    apart = {}
    for row in rows(TABLE):
        printed = row.number("weights_gib_per_gpu")
        if printed is not None:
            found, _ = planned(row)
            size = weights(found, row.split(), row.version or UNNAMED, kernels_of(row))[0] / GIB
            apart[f"{row.name}: {size:.2f} for {printed}"] = size / printed - 1
    return apart


@lru_cache(maxsize=1)
def of_caches() -> dict[str, bool]:
    inside = {}
    for row in rows(TABLE):
        _, held = planned(row)
        tokens, size = row.whole("kv_cache_tokens"), row.number("available_kv_gib")
        if held is None:
            continue
        if tokens is not None:
            low, mid, high = held.kv_tokens
            inside[f"{row.name}: {tokens} in {low}..{mid}..{high}"] = low <= tokens <= high
        elif size is not None:
            band = held.stages[0].kv_bytes
            told = (
                f"{size} GiB in {band.low / GIB:.1f}..{band.mid / GIB:.1f}..{band.high / GIB:.1f}"
            )
            inside[f"{row.name}: {told}"] = band.low <= size * GIB <= band.high
    return inside


@lru_cache(maxsize=1)
def of_rates() -> dict[str, float]:
    """Return planned by printed rates of decoding, the prompts being there already."""
    times = {}
    with RATES.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    for row in table:
        found, there = model(row["model"]), machines(row["machines"])
        assert found is not None
        wanted = Candidate(int(row["tp"]), 1, 1, expert=False)
        clients, context = int(row["requests"]), max(1, int(row["context"]))
        asked = Asked(
            found,
            there,
            clients,
            context,
            512,
            engine_version=row["vllm_version"],
            kv_cache_dtype=row["kv_cache_dtype"],
            wanted=wanted,
        )
        speed = Judge(asked).speed(wanted, sites(wanted, there), Split(wanted.tensor), 1)
        rate = speed.at(clients, context, 512, prefilled=True).output_rate.middle
        name = f"{row['model']} {context} tokens, {clients} requests: {rate:.0f}"
        times[f"{name} for {row['output_rate']}"] = rate / float(row["output_rate"])
    return times


def test_weights_that_were_held_out_are_met() -> None:
    sizes = [abs(apart) for apart in of_weights().values()]
    for name, apart in sorted(of_weights().items(), key=lambda item: -abs(item[1]))[:5]:
        print(f"  {100 * apart:+.2f} % {name}")
    assert len(sizes) >= 20
    assert median(sizes) <= 0.0025
    assert max(sizes) <= 0.02


def test_caches_that_were_held_out_are_in_the_band() -> None:
    print("\n".join(f"  {'in ' if fits else 'OUT'} {name}" for name, fits in of_caches().items()))
    assert len(of_caches()) >= 20
    assert sum(of_caches().values()) >= 0.95 * len(of_caches())


def test_tokens_of_the_printed_bytes_are_the_printed_ones() -> None:
    """Where tensor ranks differ the row says so, since the tokens are those of the least."""
    judged = 0
    for row in rows(TABLE):
        tokens, size = row.whole("kv_cache_tokens"), row.number("available_kv_gib")
        length = row.whole("max_model_len")
        if tokens is None or size is None or length is None or "least rank" in row.text["note"]:
            continue
        found, _ = planned(row)
        request = Request(
            length, row.whole("max_num_batched_tokens") or 8192, default_block_size(found)
        )
        low, high = (
            capacity(
                found,
                row.split(),
                ((size + off) * GIB,),
                request,
                row.text["kv_cache_dtype"] or "auto",
                row.version or UNNAMED,
            ).tokens
            for off in (-0.0051, 0.0051)
        )
        assert low <= tokens <= high, row.name
        judged += 1
    assert judged >= 9


def test_rates_that_were_held_out_are_in_the_band() -> None:
    for name, times in of_rates().items():
        print(f"  {'in ' if 1 / BAND <= times <= BAND else 'OUT'} {times:.2f} {name}")
    inside = sum(1 / BAND <= times <= BAND for times in of_rates().values())
    assert len(of_rates()) >= 30
    assert inside >= 0.90 * len(of_rates())


def test_the_docs_say_how_many_of_them_are_met() -> None:
    told = {
        name: (int(met), int(all_)) for name, met, all_ in LINE.findall(DOCS.read_text("utf-8"))
    }
    rates = [1 / BAND <= times <= BAND for times in of_rates().values()]
    sizes = [abs(apart) <= 0.02 for apart in of_weights().values()]
    counted = {
        "weights within 2 %": (sum(sizes), len(sizes)),
        "cache in the band": (sum(of_caches().values()), len(of_caches())),
        "rates in the band": (sum(rates), len(rates)),
    }
    assert told == counted
