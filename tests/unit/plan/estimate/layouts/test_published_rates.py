"""Rates that GPUStack's performance lab printed of vLLM, beside what is planned for each.

Requests are sent at once there, so that a burst is judged; with a few clients, their steady rate.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import sites
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.throughput.constants import BAND

from .bursts import Burst, spread
from .published import published

TESTS = Path(__file__).parents[4]
TABLE = TESTS / "data" / "public" / "gpustack-rates.csv"
DOCS = TESTS.parent / "docs" / "planner.md"
# How many of each kind of load lie in their band: what is reached, so that none is lost again.
INSIDE = {"few clients": 10, "chats": 45, "long prompts": 55, "four tokens": 14}
OWN = json.loads((TESTS / "data" / "h200-rates.json").read_text(encoding="utf-8"))
KINDS = "few clients|chats|long prompts|four tokens"
ROW = re.compile(rf"^\| ({KINDS})\b.*\| (\d+) \| (\d+) of (\d+) \|", re.M)


def kind(prompt: float, reply: float, clients: int) -> str:
    """Return the kind of load of a row, by its lengths alone."""
    if reply < 10:
        return "four tokens"
    if clients < 10:
        return "few clients"
    return "chats" if prompt < 600 else "long prompts"


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ratio(row: dict[str, str]) -> tuple[str, float]:
    """Return the kind of load, and the planned rate by the measured one."""
    model, number = published(row["model"]), int(row["requests"])
    prompt, reply = (int(row[name]) / number for name in ("input_tokens", "output_tokens"))
    clients = min(number, int(row["concurrency"] or number))
    candidate = Candidate(int(row["tp"]), int(row["pp"]), int(row["dp"]), bool(row["ep"]))
    there = machines(f"1x{row['gpu_count']} {row['gpu']}")
    request = Request(
        model,
        there,
        clients,
        int(prompt),
        int(reply),
        context=int(row["max_model_len"] or model.max_context),
        engine_version=row["vllm_version"],
        wanted=candidate,
    )
    judge, where = Judge(request), sites(candidate, there)
    split = Split(candidate.tensor, candidate.pipeline, candidate.data, candidate.expert)
    verdict = judge.verdict(candidate)
    speed = judge.speed(candidate, where, split, 1)
    if row["max_num_batched_tokens"]:
        most = int(row["max_num_batched_tokens"])
        speed.placed = replace(speed.placed, step_tokens=most)
    # An engine starts only if its cache holds one request of full length: this one did start.
    seats = max(1.0, request.longest / (prompt + reply / 2))
    if verdict.budget:
        seats = max(
            judge.most_running(verdict.budget, candidate, where),
            min(seats, judge.seats(where)) * candidate.data,
        )
    load = kind(prompt, reply, clients)
    varied = load in ("chats", "few clients")
    replies = spread(reply, number) if varied else [reply] * number
    seconds = Burst(speed, prompt, replies).seconds(seats, clients)
    return load, int(row["output_tokens"]) / seconds / float(row["output_rate"])


@lru_cache(maxsize=1)
def judged() -> dict[str, list[tuple[float, str]]]:
    found: dict[str, list[tuple[float, str]]] = {load: [] for load in INSIDE}
    for row in rows():
        if not row["left_out"]:
            load, times = ratio(row)
            found[load].append((times, f"{row['page']} {row['model']} {row['seconds']} s"))
    return found


@pytest.mark.parametrize("load", INSIDE)
def test_no_published_rate_that_was_met_is_missed(load: str) -> None:
    times = sorted(judged()[load])
    inside = sum(1 / BAND <= one <= BAND for one, _ in times)
    print(f"\n{load}: {inside} of {len(times)} within x/÷ {BAND}, median {times[len(times) // 2]}")
    for one, name in times:
        print(f"  {'in ' if 1 / BAND <= one <= BAND else 'OUT'} {one:5.2f} {name}")
    assert inside >= INSIDE[load]


def test_the_docs_say_how_many_rates_are_met() -> None:
    told = {load: tuple(map(int, counts)) for load, *counts in ROW.findall(DOCS.read_text("utf-8"))}
    counted = {
        load: (
            sum(abs(one - 1) <= 0.15 for one, _ in times),
            sum(1 / BAND <= one <= BAND for one, _ in times),
            len(times),
        )
        for load, times in judged().items()
    }
    assert told == counted


def test_what_is_left_out_of_the_table_says_why() -> None:
    why = Counter(row["left_out"] for row in rows() if row["left_out"])
    assert sum(why.values()) < 0.2 * len(rows()), why


@pytest.mark.parametrize(
    ("model", "gpu", "release", "prompt", "reply", "seconds"),
    [
        # vllm#10635, before and after it, chats and completions: V0, 1,000 requests at once.
        ("Qwen/Qwen2.5-1.5B-Instruct", "H100", "0.6.4", 217, 172, 1000 / 57.63),
        ("Qwen/Qwen2.5-1.5B-Instruct", "H100", "0.6.4", 217, 189, 1000 / 52.88),
    ],
)
def test_bursts_that_others_printed_lie_in_their_band(
    model: str, gpu: str, release: str, prompt: int, reply: int, seconds: float
) -> None:
    row = {
        **dict.fromkeys(rows()[0], ""),
        **{"model": model, "gpu": gpu, "vllm_version": release, "requests": "1000"},
        **{"tp": "1", "pp": "1", "dp": "1", "gpu_count": "1"},
        **{"input_tokens": str(prompt * 1000), "output_tokens": str(reply * 1000)},
        "output_rate": str(reply * 1000 / seconds),
    }
    _, times = ratio(row)
    print(f"{model} on {gpu}, vLLM {release}: planned by measured {times:.2f}")
    assert 1 / BAND <= times <= BAND


@pytest.mark.parametrize("name", [name for name in OWN if name != "how"])
def test_rates_of_our_own_engines_lie_in_their_band(name: str) -> None:
    model = replace(published(name), vocab=49152)
    for clients, rate in OWN[name].items():
        request = Request(
            model, machines("1x1 H200"), int(clients), 1024, 512, engine_version="0.26.0"
        )
        load = answer(request).chosen.load
        assert load is not None and load.output_rate.holds(rate)
        print(name, clients, rate, load.output_rate.middle)


def test_each_token_of_a_prompt_is_multiplied() -> None:
    """An H100 cannot take in more tokens of Qwen3-8B than it has operations for."""
    model = published("Qwen/Qwen3-8B")
    for prompt in (64, 217, 1024, 8000):
        request = Request(model, machines("1x1 H100"), 256, prompt, 4)
        load = answer(request).chosen.load
        assert load is not None
        taken = load.output_rate.middle / 4 * prompt
        operations = 2 * (model.bytes() / 2 - model.vocab * model.hidden)
        assert taken < 989.4e12 / operations


def test_tensor_ranks_inside_a_node_are_told_before_stages_where_they_were_faster() -> None:
    """gpt-oss-120b on two H100: 7,649 tokens/s as TP2 and 5,338 as PP2 were measured."""
    two = [
        row
        for row in rows()
        if row["page"] == "gpt-oss-120b/h100" and row["output_rate"] in ("7648.67", "5337.65")
    ]
    tensor, stages = sorted(two, key=lambda row: row["pp"])
    planned = [ratio(row)[1] * float(row["output_rate"]) for row in (tensor, stages)]
    assert planned[0] > planned[1]
