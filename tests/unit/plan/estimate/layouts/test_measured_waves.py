"""First tokens of clients that ask at once, on H200, beside what is planned for such a wave.

tests/data/README.md says how they were measured. Nothing was fitted to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.table import document, lines

from .published import BLOCK, CONFIGS

DATA = Path(__file__).parents[4] / "data"
WHERE = {
    "h200-layouts": {
        "fp8-auto": Candidate(1, replicas=2),
        "dense-data": Candidate(1, replicas=2),
        "dense-tensor": Candidate(2),
    },
    "h200-stages": {"dense-pipeline": Candidate(1, 2)},
    "h200-four": {"tensor": Candidate(4), "replicas": Candidate(1, replicas=2)},
}
# Waves drift apart where prompts of the next one come while many still decode.
DRIFTED = {("fp8-auto", 256)}


def asked(name: str, layout: Candidate, load: dict[str, Any], sizes: tuple[int, int]) -> Request:
    config = json.loads((CONFIGS / "Qwen--Qwen3-8B_config.json").read_text(encoding="utf-8"))
    changes = {"quantization_config": BLOCK} if name == "fp8-auto" else {}
    model = understand(Settings({**config, **changes, "vocab_size": 49152}, name), name)
    there = machines(f"1x{layout.ranks * layout.replicas} H200")
    return Request(
        model, there, load["concurrency"], *sizes, engine_version="0.32.0", wanted=layout
    )


def rows() -> Iterator[tuple[str, Request, float, float]]:
    for file, layouts in WHERE.items():
        kept = json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"))
        for name, layout in layouts.items():
            engine = kept["engines"][name]
            sizes = tuple(
                engine.get(one, kept.get(one)) for one in ("input_tokens", "output_tokens")
            )
            for load in engine["loads"]:
                if load["concurrency"] >= 64:
                    times = load["ttft_ms_median"] / 1e3, load["ttft_ms_p99"] / 1e3
                    yield name, asked(name, layout, load, sizes), *times


@pytest.mark.parametrize(
    ("name", "request_", "median", "last"),
    list(rows()),
    ids=lambda one: one if isinstance(one, str) else getattr(one, "concurrency", ""),
)
def test_first_tokens_of_a_wave_come_as_planned(
    name: str, request_: Request, median: float, last: float
) -> None:
    """`first after` alone, of clients one by one, is two to sixty times too soon for them."""
    load = answer(request_).chosen.load
    assert load is not None
    print(name, request_.concurrency, load.wave, median, last)
    if (name, request_.concurrency) in DRIFTED:
        assert load.wave.last > last and load.wave.half > median
        return
    assert load.wave.last == pytest.approx(last, rel=0.2)
    assert 0.65 * median < load.wave.half < 1.45 * median
    assert load.first_token.middle < 0.1 * last


def test_the_plan_prints_both_times_where_clients_share_an_engine() -> None:
    load = {"concurrency": 64}
    found = answer(asked("dense", Candidate(2), load, (1024, 512)))
    (row,) = [line for line in lines(found) if "all asked at once" in line]
    assert "half have their first token after 532 ms, all after 1.1 s" in row
    told = document(found)["chosen"]["load"]["seconds_to_first_token_at_once"]
    assert told["half"] == pytest.approx(told["all"] / 2, rel=0.01)
    alone = answer(asked("dense", Candidate(2), {"concurrency": 1}, (1024, 512)))
    assert not [line for line in lines(alone) if "all asked at once" in line]
