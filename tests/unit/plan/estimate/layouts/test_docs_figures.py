"""The figures of docs/planner.md and docs/aws.md, computed anew: none of them can go stale.

Of the plans that are printed there each line must be printed; `[...]` stands for what was left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.architectures.carried import CONFIGS as CARRIED
from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.drafts import with_drafts
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.architectures.source import load as load_model
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.apart import engine_of
from vllm_ansible.plan.estimate.layouts.candidate import Candidate
from vllm_ansible.plan.estimate.layouts.command import OK, main
from vllm_ansible.plan.estimate.layouts.evaluate import Judge
from vllm_ansible.plan.estimate.layouts.placing import sites
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.plan.estimate.throughput.estimate import Estimate, Speed

from . import (
    test_h200_engines,
    test_measured_four,
    test_measured_in_step,
    test_measured_layouts,
    test_measured_stages,
    test_measured_waves,
    test_own_rates,
)
from .bursts import Burst
from .conftest import SHAPES
from .published import CONFIGS

DOCS = Path(__file__).parents[5] / "docs"
COMMAND = re.compile(r"^    \$ vllm-ansible plan (.*)$", re.M)
INDENT, LEFT_OUT = "    ", "[...]"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}


def examples() -> list[tuple[str, str]]:
    """Return each command of the pages, and what stands below it."""
    found = []
    for page in ("planner.md", "aws.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for command in COMMAND.finditer(text):
            shown = []
            for line in text[command.end() + 1 :].splitlines():
                if line.startswith(f"{INDENT}$ vllm-ansible") or (
                    line and not line.startswith(INDENT)
                ):
                    break
                shown.append(line.strip())
            found.append((command[1], " ".join(shown)))
    return found


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Return a directory that has the models of the pages by their names."""
    values = json.loads((CONFIGS / "deepseek-ai--DeepSeek-R1_config.json").read_text("utf-8"))
    for name, changes in (
        ("deepseek-ai--DeepSeek-R1", {}),
        ("QuixiAI--DeepSeek-R1-AWQ", {"quantization_config": AWQ}),
    ):
        path = tmp_path / f"{name}_config.json"
        path.write_text(json.dumps({**values, **changes}), encoding="utf-8")
    text = (DOCS / "planner.md").read_text(encoding="utf-8")
    prices = text.partition("$ cat prices.yml\n")[2].partition(f"\n{INDENT}$")[0]
    lines = [line.removeprefix(INDENT) for line in prices.splitlines()]
    (tmp_path / "prices.yml").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def words(text: str) -> str:
    """Return the words of a text, however its lines are broken."""
    return " ".join(text.replace(" \\ ", " ").split())


@pytest.mark.parametrize(("command", "shown"), examples(), ids=[one for one, _ in examples()])
def test_what_a_page_shows_of_a_plan_is_printed(
    command: str,
    shown: str,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(models)
    name, *rest = shlex.split(command)
    assert main([f"{name.replace('/', '--')}_config.json", *rest]) == OK
    told = words(capsys.readouterr().out.replace("\\\n", " "))
    place = 0
    for piece in shown.split(LEFT_OUT):
        piece = words(piece)
        found = told.find(piece, place)
        assert found >= 0, f"not printed by {command}:\n{piece}\nprinted:\n{told[place:]}"
        place = found + len(piece)


def pages() -> str:
    return " ".join((DOCS / "planner.md").read_text(encoding="utf-8").split())


def seconds(time: float) -> str:
    return f"{time:.1f} s" if time >= 1 else f"{1000 * time:.0f} ms"


def whole(number: float) -> str:
    """Return a number without decimals, halves up."""
    return f"{int(number + 0.5):,}"


def beside(measured: float, planned: float) -> str:
    """Return a measured rate with how far it is from the plan, where that is half a percent."""
    off = round(100 * (measured / planned - 1))
    told = f" ({abs(off)} % {'above' if off > 0 else 'below'})" if off else ""
    return f"{whole(measured)}{told}"


def prefill_apart() -> Iterator[str]:
    for load in test_measured_stages.MEASURED["apart"]["loads"]:
        one = test_measured_stages.together(load["concurrency"])
        yield " | ".join(
            (
                f"| {load['concurrency']}",
                f"{one.output_rate:,.0f}",
                beside(load["output_tokens_per_second"], one.output_rate),
                seconds(one.first_token),
                seconds(load["ttft_ms_median"] / 1e3),
                f"{1e3 * one.token_time:.1f} ms",
                f"{load['time_per_output_token_ms_median']:.1f} ms |",
            )
        )


def replicas_beside() -> Iterator[str]:
    for requests, there in test_measured_four.loads("apart").items():
        here = test_measured_four.loads("replicas")[requests]
        apart_, both = (test_measured_four.divided(requests, name) for name in ("apart", "both"))
        yield " | ".join(
            (
                f"| {requests}",
                f"{apart_.output_rate:,.0f}",
                beside(there["output_tokens_per_second"], apart_.output_rate),
                seconds(apart_.first_token),
                seconds(there["ttft_ms_median"] / 1e3),
                f"{both.output_rate:,.0f}",
                beside(here["output_tokens_per_second"], both.output_rate),
                f"{seconds(both.first_token)}; {seconds(both.at_once)}",
                f"{seconds(here['ttft_ms_median'] / 1e3)}; {seconds(here['ttft_ms_p99'] / 1e3)} |",
            )
        )


WAVES: dict[str, list[tuple[str, int]]] = {
    "8B in FP8, two data ranks, 64": [("fp8-auto", 64)],
    "the same, 256 (its waves drift apart)": [("fp8-auto", 256)],
    "8B, two data ranks, 64": [("dense-data", 64)],
    "8B, TP2, 64 and 256": [("dense-tensor", 64), ("dense-tensor", 256)],
    "8B, PP2, 64 and 256": [("dense-pipeline", 64), ("dense-pipeline", 256)],
    "8B, TP4, 64 and 256": [("tensor", 64), ("tensor", 256)],
    "8B, two replicas, prompts of 4,096, 64": [("replicas", 64)],
}


def waves() -> Iterator[str]:
    times = {}
    for name, asked, half, last in test_measured_waves.rows():
        load = answer(asked).chosen.load
        assert load is not None
        times[name, asked.concurrency] = (load.wave.half, half, load.wave.last, last)
    for told, keys in WAVES.items():
        columns = zip(*(times[key] for key in keys), strict=True)
        cells = (", ".join(seconds(one) for one in column) for column in columns)
        yield f"| {told} | {' | '.join(cells)} |"


def two_numbers(planned: float, measured: float) -> str:
    return f"{whole(planned)}, {whole(measured)}"


def one_device() -> Iterator[str]:
    planned = test_own_rates.planned()
    for name in (test_own_rates.DENSE, test_own_rates.MIXTURE):
        cells = [two_numbers(*planned["one H200", name, load]) for load in (1, 8, 64, 256)]
        yield f"| {name.partition('--')[2]} | {' | '.join(cells)} |"


def two_devices() -> Iterator[str]:
    told = (
        "Qwen3-8B's shape, TP2",
        "Qwen3-30B-A3B's shape, TP2",
        "Qwen3-30B-A3B's shape, DP2 EP2 behind the router (25 November 2026, "
        "`tests/data/h100-bundle.json`)",
        "the same, 256 requests",
    )
    both = test_own_rates.kept("h100-two")["engines"]
    engines = both["dense-tensor"], both["experts-tensor"]
    engines += (test_own_rates.kept("h100-bundle")["engines"]["experts-data"], {})
    kind = "two H100, TP2 and a mixture"
    found = [one for one in test_own_rates.verdicts() if one[0] == kind]
    for name, engine, (_, _, _, verdict, rate) in zip(told, engines, found, strict=True):
        assert verdict.budget is not None
        tokens = verdict.budget.kv_tokens[1]
        kept = two_numbers(tokens, engine["kv_tokens"]["printed"]) if engine else ""
        yield " ".join(f"| {name} | {two_numbers(verdict.output_rate, rate)} | {kept} |".split())


def ranks_in_step() -> Iterator[str]:
    told = ("Qwen3-30B-A3B", "DeepSeek-R1 with 4 layers, FP8 by blocks, MLA")
    for shape, name in zip(told, test_measured_in_step.SHAPES, strict=True):
        seen = test_measured_in_step.ENGINES[name]
        cells = []
        for load in seen["loads"]:
            verdict = test_measured_in_step.planned(name, load["concurrency"])
            cells.append(two_numbers(verdict.output_rate, load["output_tokens_per_second"]))
        assert verdict.budget is not None
        cells.append(two_numbers(verdict.budget.kv_tokens[1], seen["kv_tokens"]["printed"]))
        yield f"| {shape} | {' | '.join(cells)} |"
    times = [
        two_times(test_measured_in_step.planned(name, 64).load, test_measured_in_step.ENGINES[name])
        for name in test_measured_in_step.SHAPES
    ]
    few, more, eagerly = (
        1e3 * test_measured_in_step.planned(*one).token_time
        for one in (("latent-experts", 1), ("latent-experts", 8), ("sound", 64))
    )
    yield f"a step took 2.9 and 3.0 ms where {few:.1f} and {more:.1f} are planned"
    yield f"took 14.1 and 13.2 ms a token where {eagerly:.1f} are planned"
    yield f"First tokens of 64 that ask at once come later than planned: {'; '.join(times)}"


def two_times(load: Estimate | None, engine: dict[str, Any]) -> str:
    """Return the last first token of a wave of 64, planned and measured."""
    assert load is not None
    (seen,) = (one for one in engine["loads"] if one["concurrency"] == 64)
    return f"the last {1e3 * load.wave.last:.0f} ms planned, {seen['ttft_ms_p99']:.0f} measured"


SMALL = (
    (
        "SmolLM2-135M with even heads, TP2",
        "tensor",
        {"num_attention_heads": 12, "num_key_value_heads": 4},
        Candidate(2),
        "{}, {}",
    ),
    (
        "SmolLM2-135M, PP2 over Ray, chosen by `layout: auto` that day",
        "auto",
        {},
        Candidate(1, 2),
        "{}, {}",
    ),
)


def small_models() -> Iterator[str]:
    for told, name, changes, layout, rates in SMALL:
        seen = test_own_rates.kept("h100-two")["engines"][name]
        config = {**CARRIED["smollm2-135m-instruct"], **changes}
        asked = Request(
            understand(Settings(config, name), name),
            machines("1x2 H100-80"),
            64,
            1024,
            512,
            engine_version="0.32.0",
            wanted=layout,
        )
        verdict = answer(asked).chosen
        assert verdict.budget is not None
        measured = whole(seen["output_tokens_per_second"]["measured"])
        kept = two_numbers(verdict.budget.kv_tokens[1], seen["kv_tokens"]["printed"])
        yield f"| {told} | {rates.format(whole(verdict.output_rate), measured)} | {kept} |"


def weights_that_are_not_met() -> Iterator[str]:
    model = load_model(str(CONFIGS / "zai-org--GLM-5.3-FP8_config.json"))
    (alone,), (more,) = (weights(one, Split(8)) for one in (model, with_drafts(model)))
    yield f"{alone / 2**30:.2f} are planned, and {more / 2**30:.2f} with the layer that proposes"


def beside_the_peer() -> Iterator[str]:
    """What is planned today of the three lines that aiconfigurator was asked about."""
    model = load_model(str(CONFIGS / "deepseek-ai--DeepSeek-R1_config.json"))
    asked = (("2x8 H100-80", 2816), ("1x8 H200", 3072), ("4x8 H200", 12288))
    rates = [answer(Request(model, machines(line), load, 1024, 512)).chosen for line, load in asked]
    yield "Today it plans {}, {} and {} tokens/s".format(*(whole(one.output_rate) for one in rates))


LAYOUTS = {
    "fp8-auto": "Qwen3-8B in FP8 by blocks, two data ranks, chosen by `layout: auto`",
    "dense-data": "Qwen3-8B in bfloat16, two data ranks",
    "dense-tensor": "Qwen3-8B in bfloat16, TP2",
    "latent-tensor": "DeepSeek-R1 with 4 layers, FP8 by blocks, MLA, TP2",
}


def served() -> Iterator[str]:
    rates = {(name, load): rate for name, load, rate in test_measured_layouts.ROWS}
    for name, told in LAYOUTS.items():
        engine, cells = test_measured_layouts.ENGINES[name], []
        for load in (1, 8, 64, 256):
            planned = test_measured_layouts.planned(name, load)
            if (name, load) in rates:
                cells.append(two_numbers(planned.output_rate, rates[name, load]))
            else:
                compiled = load in engine.get("compiled_while_measured", ())
                cells.append("not measured: it compiled" if compiled else "")
        budget = test_measured_layouts.planned(name, 64).budget
        assert budget is not None
        cells.append(two_numbers(budget.kv_tokens[1], engine["kv_tokens"]["printed"]))
        yield " ".join(f"| {told} | {' | '.join(cells)} |".split())


def stages_over_ray() -> Iterator[str]:
    rates = test_measured_stages.RATES
    planned = [
        test_measured_stages.planned(load, Candidate(1, 2)).output_rate for load in sorted(rates)
    ]
    measured = [rates[load] for load in sorted(rates)]
    waves = [test_measured_stages.in_waves(load) for load in sorted(rates)]
    listed = ("{}, {}, {} and {}".format(*map(whole, one)) for one in (planned, measured))
    yield "{} tokens/s are planned at 1, 8, 64 and 256 requests, and {} were".format(*listed)
    yield "by step such waves give {}, {}, {} and {}: within".format(*map(whole, waves))


RANKS = {
    "TP8, 61 layers": "r1_tp8_61",
    "TP16, 61 layers": "r1_tp16_61",
    "TP16 with whole experts, 61 layers": "r1_ep16_tp16_61",
    "TP4 PP4, the last 15 layers": "r1_pp4tp4_15moe",
    "DP16 EP16, 15 layers": "r1_dp16ep16_15moe",
    "Llama-3.1-8B, bf16": "llama8b",
}


def ranks() -> Iterator[str]:
    steps = {(name, load): took for name, load, took in test_h200_engines.STEPS}
    shapes = {name: understand(Settings(SHAPES[name], name), name) for name in ("r1", "llama-8b")}
    for told, name in RANKS.items():
        cells = [
            f"{test_h200_engines.planned(shapes.__getitem__, name, load):.1f}, "
            f"{steps[name, load]:.1f}"
            for load in (1, 8, 32, 64, 128)
        ]
        yield f"| {told} | {' | '.join(cells)} |"


EAGER = (
    (
        "4x4 H100-80 @ 4x400Gb",
        {8: 76, 32: 300, 48: 446, 64: 607, 96: 902, 112: 1030},
        (Candidate(16), Candidate(16), Candidate(4, 4), Candidate(4, 1, 4, True)),
    ),
    (
        "2x4 H200 @ 4x400Gb",
        {96: 690, 128: 921, 144: 1022},
        (Candidate(8), Candidate(8), Candidate(4, 2), Candidate(4, 1, 2, True)),
    ),
)


def eager() -> Iterator[str]:
    model = load_model(str(CONFIGS / "deepseek-ai--DeepSeek-R1_config.json"))
    for line, measured, layouts in EAGER:
        for load, rate in measured.items():
            found = [
                answer(asked_eagerly(model, line, load, layout, eager=not place))
                for place, layout in enumerate(layouts)
            ]
            planned = " | ".join(f"{one.chosen.output_rate:,.0f}" for one in found)
            yield f"| {load} | {rate:,} | {planned} |"
        full = " | ".join(
            f"{one.saturated.output_rate.middle:,.0f} ({one.saturated.running:,.0f})"
            for one in found
        )
        yield f"| saturated | - | {full} |"


def asked_eagerly(
    model: Model, line: str, load: int, layout: Candidate, *, eager: bool = True
) -> Request:
    """Return the question of these tables: eager engines are of the release that ran."""
    return Request(
        model,
        machines(line),
        load,
        32,
        1024,
        engine_version="0.8.5.post1" if eager else None,
        eager=eager,
        wanted=layout,
    )


def steps_of_tensor_ranks() -> Iterator[str]:
    """Steps without a prompt, with half of the replies there: medians between tokens are of these.

    Then 512 requests, of which 256 run, step by step.
    """
    four, two = (speed(Candidate(number)) for number in (4, 2))
    steps = [1e3 * four.tick(float(load), 1280.0, 0.0, 0.0)[0] for load in (1, 8, 64)]
    yield "and {:.2f}, {:.2f} and {:.2f} are planned".format(*steps)
    yield f"ranks 5.4 at 64, and {1e3 * two.tick(64.0, 1280.0, 0.0, 0.0)[0]:.1f}. What is left"
    took = Burst(four, 1024, [512] * 512).seconds(256, 256)
    yield f"by step these give {tens(512 * 512 / took)} tokens/s, and 13,531 were measured"


def speed(layout: Candidate) -> Speed:
    """Return how fast so many tensor ranks of H200 are planned to be."""
    asked = test_measured_four.asked("tensor", 64, layout, layout.tensor)
    return Judge(asked).speed(layout, sites(layout, asked.machines), Split(layout.tensor), 1)


def tens(rate: float) -> str:
    return f"{10 * round(rate / 10):,}"


def prompts_and_steps_added_up() -> Iterator[str]:
    names = ("fp8-auto", "dense-data", "dense-tensor")
    at = {
        (name, load): tens(test_measured_layouts.in_waves(name, load))
        for name in names
        for load in (64, 256)
    }
    few = "{}, {} and {}".format(*(at[name, 64] for name in names))
    many = "{} and {}".format(*(at[name, 256] for name in ("fp8-auto", "dense-tensor")))
    measured = "10,070, 7,696 and 8,727"
    yield f"as such waves, give {few} at 64 requests ({measured} measured) and {many} at 256"


def off(ratio: float) -> int:
    """Return by how many percent a ratio is above one."""
    return round(100 * (ratio - 1))


def sentences() -> Iterator[str]:
    """What the text between the tables says of them."""
    tensor, data = (
        test_measured_layouts.planned(name, 64).output_rate
        for name in ("dense-tensor", "dense-data")
    )
    yield f"Today TP2 is planned {off(tensor / data)} % faster"
    fast: dict[str, list[int]] = {}
    for kind, config, load, verdict, rate in test_own_rates.verdicts():
        if config == test_own_rates.MIXTURE and load > 1:
            fast.setdefault(kind, []).append(off(verdict.output_rate / rate))
    one, two = fast["one H200"], fast["two H100, TP2 and a mixture"]
    yield f"planned {min(one)} to {max(one)} % too fast on H200 from 8 requests on and up to "
    yield f"and up to {max(two)} % on H100"
    shapes = {name: understand(Settings(SHAPES[name], name), name) for name in ("r1", "llama-8b")}
    ratios = [
        test_h200_engines.planned(shapes.__getitem__, name, load) / took
        for name, load, took in test_h200_engines.STEPS
    ]
    yield f"Planned is {min(ratios):.2f} to {max(ratios):.2f} of measured"
    model = load_model(str(CONFIGS / "deepseek-ai--DeepSeek-R1_config.json"))
    line, loads, (layout, *_) = EAGER[0]
    took = [
        1e3 * answer(asked_eagerly(model, line, load, layout)).chosen.token_time
        for load in (min(loads), max(loads))
    ]
    yield "The eager step takes {:.0f} to {:.0f} ms from 8 to 112".format(*took)
    judge = Judge(test_measured_four.asked("apart", 1, None, 2))
    engine = engine_of(judge, judge.verdict(Candidate(1, replicas=2)))
    assert engine is not None
    yield f"took 101 ms a prompt where {1e3 * engine.taken:.0f} are planned"
    yield f"(101 ms each, {1e3 * engine.taken:.0f} planned)"
    load = test_measured_four.planned("tensor", 1).load
    assert load is not None
    yield f"on TP4 57 ms where {1e3 * load.first_token.middle:.0f} are planned"


@pytest.mark.parametrize(
    "table",
    [
        prefill_apart,
        replicas_beside,
        waves,
        one_device,
        two_devices,
        small_models,
        weights_that_are_not_met,
        beside_the_peer,
        served,
        stages_over_ray,
        ranks,
        ranks_in_step,
        eager,
        steps_of_tensor_ranks,
        prompts_and_steps_added_up,
        sentences,
    ],
    ids=lambda table: table.__name__,
)
def test_a_table_has_what_is_planned_today(table: Callable[[], Iterator[str]]) -> None:
    page = pages()
    stale = [row for row in table() if row not in page]
    assert not stale, "docs/planner.md is to say:\n" + "\n".join(stale)
