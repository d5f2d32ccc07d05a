"""All rates of our own engines beside what is planned for them, by devices, as the docs say it.

tests/data/README.md says how they were measured. No term of the planner was made of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict

from .published import BLOCK, CONFIGS

TESTS = Path(__file__).parents[4]
DATA, DOCS = TESTS / "data", TESTS.parent / "docs" / "planner.md"
VOCABULARY = 49152
DENSE, MIXTURE = "Qwen--Qwen3-8B", "Qwen--Qwen3-30B-A3B"
LATENT = "deepseek-ai--DeepSeek-R1"
SHORT, LONG = (1024, 512), (4096, 128)
ROW = re.compile(r"^\| ([^|]*?), (\d+) \| \d+ % \| (\d+) % \| \d+ \| (\d+) \|$", re.M)
ALL = re.compile(r"^\| these (\d+) \(their median\) \| .* \| (\d+) % \((\d+) %\) \| \d+ \|", re.M)

# What ran: the kind of row, configuration, changes to it, machines, layout, release, lengths.
Ran = tuple[str, str, dict[str, Any], str, Candidate, str, tuple[int, int]]


def kept(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def loads(engine: dict[str, Any]) -> list[tuple[int, float]]:
    """Return requests at once and tokens a second of each load in which nothing was compiled."""
    spoiled = engine.get("compiled_while_measured", ())
    return [
        (load["concurrency"], load["output_tokens_per_second"])
        for load in engine["loads"]
        if load["concurrency"] not in spoiled
    ]


def rows() -> Iterator[tuple[Ran, list[tuple[int, float]]]]:
    one, two = "one H200", "two H200, TP2, data ranks and replicas"
    rates = kept("h200-rates")
    for config in (DENSE, MIXTURE):
        seen = rates[config.replace("--", "/")]
        found = [(int(clients), rate) for clients, rate in seen.items()]
        yield (one, config, {}, "1x1 H200", Candidate(1), "0.26.0", SHORT), found
    layouts, four = kept("h200-layouts")["engines"], kept("h200-four")["engines"]
    replicas = Candidate(1, replicas=2)
    few = {"num_hidden_layers": 4, "first_k_dense_replace": 1}
    for name, config, changes, layout in (
        ("fp8-auto", DENSE, {"quantization_config": BLOCK}, replicas),
        ("dense-data", DENSE, {}, replicas),
        ("dense-tensor", DENSE, {}, Candidate(2)),
        ("latent-tensor", LATENT, few, Candidate(2)),
    ):
        yield (two, config, changes, "1x2 H200", layout, "0.32.0", SHORT), loads(layouts[name])
    yield (two, DENSE, {}, "1x2 H200", replicas, "0.32.0", LONG), loads(four["replicas"])
    stages = kept("h200-stages")["engines"]["dense-pipeline"]
    ran = ("two H200, two stages", DENSE, {}, "1x2 H200", Candidate(1, 2), "0.32.0", SHORT)
    yield ran, loads(stages)
    ran = ("four H200, TP4", DENSE, {}, "1x4 H200", Candidate(4), "0.32.0", SHORT)
    yield ran, loads(four["tensor"])
    both, engines = "two H100, TP2 and a mixture", kept("h100-two")["engines"]
    for name, config in (("dense-tensor", DENSE), ("experts-tensor", MIXTURE)):
        rate = engines[name]["output_tokens_per_second"]["measured"]
        yield (both, config, {}, "1x2 H100-80", Candidate(2), "0.32.0", SHORT), [(64, rate)]
    experts = kept("h100-bundle")["engines"]["experts-data"]
    found = [
        (64, experts["output_tokens_per_second"]["measured"]),
        (256, experts["at_256"]["output_tokens_per_second"]),
    ]
    shared = Candidate(1, data=2, expert=True)
    yield (both, MIXTURE, {}, "1x2 H100-80", shared, "0.32.0", SHORT), found


@lru_cache(maxsize=1)
def verdicts() -> list[tuple[str, str, int, Verdict, float]]:
    """Return kind, configuration and requests of each rate, what is planned, and the rate."""
    found = []
    for (kind, config, changes, there, layout, release, sizes), measured in rows():
        values = json.loads((CONFIGS / f"{config}_config.json").read_text(encoding="utf-8"))
        values |= {**changes, "vocab_size": VOCABULARY}
        model = understand(Settings(values, config), config)
        for clients, rate in measured:
            asked = Request(
                model, machines(there), clients, *sizes, engine_version=release, wanted=layout
            )
            found.append((kind, config, clients, answer(asked).chosen, rate))
    return found


def planned() -> dict[tuple[str, str, int], tuple[float, float]]:
    """Return the planned and the measured rate by kind, configuration and requests.

    Of what ran in several layouts, the first.
    """
    found: dict[tuple[str, str, int], tuple[float, float]] = {}
    for kind, config, clients, verdict, rate in verdicts():
        found.setdefault((kind, config, clients), (verdict.output_rate, rate))
    return found


def apart() -> dict[str, list[tuple[float, bool]]]:
    """Return by how much each rate is off, in logarithms, and whether it lies in its band."""
    found: dict[str, list[tuple[float, bool]]] = {}
    for kind, config, clients, verdict, rate in verdicts():
        ratio = verdict.output_rate / rate
        print(f"{kind} {config} {clients}: planned by measured {ratio:.2f}")
        found.setdefault(kind, []).append((abs(log(ratio)), verdict.rates.holds(rate)))
    return found


def percent(off: float) -> int:
    return round(100 * (exp(off) - 1))


def test_the_docs_say_how_far_our_own_rates_are_off() -> None:
    told = {kind: tuple(map(int, counts)) for kind, *counts in ROW.findall(DOCS.read_text("utf-8"))}
    counted = {
        kind: (len(rates), percent(sum(off for off, _ in rates) / len(rates)), sum(map(_in, rates)))
        for kind, rates in apart().items()
    }
    assert {kind: told.get(kind) for kind in counted} == counted
    every = [off for rates in apart().values() for off, _ in rates]
    said = ALL.findall(DOCS.read_text("utf-8"))
    typical = percent(sum(every) / len(every)), percent(median(every))
    assert [tuple(map(int, one)) for one in said] == [(len(every), *typical)]


@pytest.mark.parametrize("kind", ["one H200", "two H200, TP2, data ranks and replicas"])
def test_dense_models_and_few_devices_are_met(kind: str) -> None:
    """With 3 us for each captured kernel the median of both was 8 to 10 %."""
    assert percent(median(off for off, _ in apart()[kind])) <= 5


def _in(row: tuple[float, bool]) -> bool:
    return row[1]
