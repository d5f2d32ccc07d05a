"""Our own measured rates beside the planner's and NVIDIA's aiconfigurator's, the same questions.

tests/data/README.md says how aiconfigurator was asked; its answers are kept.
"""

from __future__ import annotations

import csv
import json
import re
from math import exp, log
from pathlib import Path

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request

from .published import CONFIGS as CONFIGS_AT

TESTS = Path(__file__).parents[4]
DOCS = TESTS.parent / "docs" / "planner.md"
TOLD = re.compile(
    r"planner's typical error is (\d+) % and its largest (\d+) %, "
    r"aiconfigurator's (\d+) and (\d+) %"
)
CONFIGS = {
    name: CONFIGS_AT / f"{name.replace('/', '--')}_config.json"
    for name in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B")
}
VOCABULARY = 49152


def measured_model(name: str) -> Model:
    """Return the shape that was served, which has the vocabulary of another model."""
    config = json.loads(CONFIGS[name].read_text(encoding="utf-8"))
    return understand(Settings({**config, "vocab_size": VOCABULARY}, name), name)


def errors(stages: bool, kind: str = "") -> list[tuple[float, float]]:
    """Return by how much each of both is off, in logarithms; of two stages only where asked."""
    found = []
    with (TESTS / "data" / "aiconfigurator-rates.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            layout = Candidate(int(row["tensor"]), int(row["pipeline"]))
            if (layout.pipeline > 1 and not stages) or kind not in row["model"]:
                continue
            asked = Request(
                measured_model(row["model"]),
                machines(f"1x{layout.tensor * layout.pipeline} H200"),
                int(row["requests"]),
                1024,
                512,
                engine_version=row["release"],
                wanted=layout,
            )
            mine, measured = answer(asked).chosen.output_rate, float(row["measured"])
            peer = float(row["aiconfigurator"])
            print(row, f"planner x{mine / measured:.2f}, aiconfigurator x{peer / measured:.2f}")
            found.append((abs(log(mine / measured)), abs(log(peer / measured))))
    return found


@pytest.mark.parametrize(("place", "stages"), [(0, True), (1, False)])
def test_rates_of_engines_with_graphs_are_met_as_the_docs_say_beside_the_peer(
    place: int, stages: bool
) -> None:
    mine, peers = zip(*errors(stages), strict=True)
    typical = [exp(sum(one) / len(one)) - 1 for one in (mine, peers)]
    largest = [exp(max(one)) - 1 for one in (mine, peers)]
    assert largest[0] < largest[1] and typical[0] < typical[1]
    said = TOLD.findall(" ".join(DOCS.read_text(encoding="utf-8").split()))
    shown = [round(100 * one) for one in (typical[0], largest[0], typical[1], largest[1])]
    assert [int(one) for one in said[place]] == shown, shown


def test_the_mixture_is_met_as_the_docs_say() -> None:
    mine, peers = (exp(sum(one) / 4) - 1 for one in zip(*errors(False, "A3B"), strict=True))
    told = f"of the mixture aiconfigurator is the better with {peers:.0%} to {mine:.0%}."
    assert told.replace("%", " %") in " ".join(DOCS.read_text(encoding="utf-8").split())
