"""What vLLM took for one rank of DeepSeek-R1 on an H200, beside what is planned for it.

tests/data/README.md says how it was measured; no constant comes from these engines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator
from vllm_ansible.accelerators.machines import Fabric
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.plan.estimate.throughput.collectives import links
from vllm_ansible.plan.estimate.throughput.step import Pass, Rank, stage_pass
from vllm_ansible.plan.estimate.throughput.work import Kinds

DATA = Path(__file__).parents[4] / "data" / "h200-engines.json"
MEASURED: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))["engines"]
# Each engine on its one device: the model, the split of which it is a rank, the layers it has.
RANKS: dict[str, tuple[str, Split, range]] = {
    "r1_tp8_61": ("r1", Split(8), range(61)),
    "r1_tp8_10": ("r1", Split(8), range(10)),
    "r1_tp16_61": ("r1", Split(16), range(61)),
    "r1_ep16_tp16_61": ("r1", Split(16, expert=True), range(61)),
    "r1_pp4tp4_15moe": ("r1", Split(4), range(46, 61)),
    "r1_dp16ep16_15moe": ("r1", Split(1, data=16, expert=True), range(46, 61)),
    "llama8b": ("llama-8b", Split(1), range(32)),
}
STEPS = [
    (name, int(sequences), milliseconds)
    for name in RANKS
    for sequences, milliseconds in MEASURED[name]["decode_ms"]["graphs"].items()
]
BAND = 1.5


@pytest.mark.parametrize("name", ["r1_tp8_61", "r1_tp16_61", "r1_ep16_tp16_61", "llama8b"])
def test_weights_of_a_rank_are_those_of_the_engine(model: Any, name: str) -> None:
    shape, split, _ = RANKS[name]
    (held,) = weights(model(shape), split, "0.26.0")
    # Beside its parameters the engine counts tables and buffers that it makes while it loads.
    assert held / 2**30 == pytest.approx(MEASURED[name]["memory"]["weights_gib"], rel=0.0035)


def test_a_token_of_cache_takes_what_the_engine_reserves(model: Any) -> None:
    memory = MEASURED["r1_tp8_61"]["memory"]
    tokens = memory["gpu_blocks"] * memory["block_size"]
    assert memory["available_kv_gib"] * 2**30 / tokens == pytest.approx(70_272, rel=1e-4)


def planned(model: Any, name: str, sequences: int) -> float:
    """Return the milliseconds of a captured step of a rank."""
    shape, split, layers = RANKS[name]
    work = Kinds(model(shape)).work(split.tensor, split.data, split.expert, False)
    alone = links(accelerator("H200"), Fabric(1.0), 1, 1)
    rank = Rank(accelerator("H200"), alone, alone, split.expert, False)
    load = Pass(sequences, 150, sequences * split.data)
    return stage_pass(work, work.stage(layers), True, load, rank).total * 1000


@pytest.mark.parametrize(("name", "sequences", "milliseconds"), STEPS)
def test_a_captured_step_of_a_rank_lies_in_the_band(
    model: Any, name: str, sequences: int, milliseconds: float
) -> None:
    found = planned(model, name, sequences)
    print(f"{name} at {sequences}: {found:.1f} ms planned, {milliseconds:.1f} measured")
    assert milliseconds / BAND < found < milliseconds * BAND


def test_an_eager_step_is_launches_and_hardly_anything_else() -> None:
    """How long one takes depends on the host's processor; that it is flat does not."""
    for name in ("r1_tp8_10_enforce_eager", "r1_ep16_tp16_61"):
        took = MEASURED[name]["decode_ms"]["eager"]
        assert max(took.values()) < 1.1 * min(took.values())
