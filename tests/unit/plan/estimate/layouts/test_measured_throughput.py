"""Predicted tokens per second beside every deployment that printed its own."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.accelerator import accelerator, accelerators
from vllm_ansible.accelerators.machines import Fabric, Node, usual_fabric
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.plan.estimate.throughput.constants import MEMORY_SHARE
from vllm_ansible.plan.estimate.throughput.estimate import Placed, Speed, even_stages, version
from vllm_ansible.plan.estimate.throughput.work import Kinds

TABLE = Path(__file__).parents[4] / "data" / "public" / "measured-deployments.csv"
# A row counts with these columns, a known model and accelerator, and a concurrency.
NEEDED = ("gpu", "gpu_count", "nodes", "tp", "vllm_version")
MODELS = {"deepseek-ai/DeepSeek-R1": "r1", "cognitivecomputations/DeepSeek-V3-AWQ": "r1-awq"}
INPUT, OUTPUT = 32, 1024


def points(row: dict[str, str]) -> list[tuple[float, float]]:
    """Return concurrency and output tokens per second of each figure of a row."""
    text = row["throughput"]
    found = re.findall(r"~?([\d.,]+)[a-z/ ]*(?:\([^)]*\))?\s*(?:@|at )\s*(\d+)", text)
    if found:
        return [(float(many), float(rate.replace(",", ""))) for rate, many in found]
    rate = re.fullmatch(r"\s*~?([\d.,]+)\s*tok/s\s*", text)
    if rate and row["max_num_seqs"]:
        return [(float(row["max_num_seqs"]), float(rate[1].replace(",", "")))]
    return []


def device(gpu: str) -> str | None:
    """Return the accelerator that a row means."""
    words = gpu.replace(" ", "-").removesuffix("GB")
    return next((one for one in (gpu, words, words.split("-")[0]) if _known(one)), None)


def _known(name: str) -> bool:
    return any(
        name.lower() in (word.lower() for word in (one.name, *one.aliases, *one.driver_names))
        for one in accelerators().values()
    )


def predicted(row: dict[str, str], model: Any, concurrency: float) -> Any:
    kind = accelerator(device(row["gpu"]) or "")
    nodes, count = int(row["nodes"]), int(row["gpu_count"])
    per_node = count // nodes
    tensor, pipeline = int(row["tp"]), int(row["pp"] or 1)
    lengths = re.search(r"i(\d+) o(\d+)", row["throughput"])
    split = Split(tensor, pipeline)
    version_ = version(row["vllm_version"])
    fabric: Fabric = usual_fabric([Node("", kind, per_node)])
    placed = Placed(
        tensor,
        1,
        False,
        even_stages(
            stages(model.layers, split, row["vllm_version"]), kind, max(1, tensor // per_node), 1
        ),
        nodes,
        fabric,
        row["enforce_eager"] == "yes",
        version_,
    )
    sizes = (int(lengths[1]), int(lengths[2])) if lengths else (INPUT, OUTPUT)
    return Speed(Kinds(model), placed).at(concurrency, *sizes)


def test_measured_rates_lie_in_their_band(model: Any, capsys: Any) -> None:
    used: list[tuple[str, bool]] = []
    skipped: list[str] = []
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["throughput"]]
    for row in rows:
        name = f"{row['model']} {row['quantization']} {row['throughput']}"
        missing = [column for column in NEEDED if not row[column]]
        if missing or row["model"] not in MODELS or device(row["gpu"]) is None:
            skipped.append(f"{name}: no {', '.join(missing) or 'model that is known here'}")
            continue
        figures = points(row)
        if not figures:
            skipped.append(f"{name}: no concurrency")
        for concurrency, rate in figures:
            band = predicted(row, model(MODELS[row["model"]]), concurrency).output_rate
            words = f"{name[:60]}: {rate:g} of {band.low:.0f} to {band.high:.0f} at {concurrency:g}"
            used.append((words, band.holds(rate)))
    inside = sum(held for _, held in used)
    with capsys.disabled():
        print(f"\nthroughput: {inside} of {len(used)} figures in a band of x/÷ 1.5")
        for words, held in used:
            print(f"  {'in ' if held else 'OUT'} {words}")
        for words in skipped:
            print(f"  skipped {words}")
    assert len(used) >= 12
    assert inside == len(used), "what is met is not lost again"


@pytest.mark.parametrize(("name", "width"), [("r1-awq", 2), ("r1", 1)])
def test_an_engine_of_0_7_decodes_by_matrices_that_it_multiplied_out(
    name: str, width: int, model: Any
) -> None:
    """512 x 128 for each of 1,536 and 7,168, in 16 bits or FP8; what is rotated in 16 (0.7.3)."""
    layer = model(name).layers[5]
    sizes = {one.name: one.bytes for one in layer.absorbed_before_0_8}
    assert sizes == {
        "w_q_uk": 1536 * 128 * 512 * width,
        "w_uv_o": 7168 * 128 * 512 * width,
        "w_qr": 1536 * 128 * 64 * 2,
    }
    kinds, device = Kinds(model(name)), accelerator("H100-80")
    fabric = usual_fabric([Node("", device, 8)])

    def step(engine: str, decoding: float, prompt: float) -> float:
        there = even_stages((range(61),), device, 1, 1)
        placed = Placed(8, 1, False, there, 1, fabric, False, version(engine))
        return Speed(kinds, placed).tick(decoding, 1024.0, prompt, prompt / 2)[0]

    more = 61 * sum(sizes.values()) / 8 / (device.bandwidth * MEMORY_SHARE)
    assert 0.5 * more < step("0.7.3", 1.0, 0.0) - step("0.7.0", 1.0, 0.0) < more
    # A prompt is multiplied by the matrices as they are stored.
    assert step("0.7.3", 0.0, 2048.0) == step("0.7.0", 0.0, 2048.0)
