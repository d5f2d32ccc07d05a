"""Log probabilities of a real model and of its damaged copies: each is named, and noise is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.computation.distance import distance
from vllm_ansible.computation.verdict import Server, conditions, judge

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/smollm2-computation.json").read_text()
)
# The same model on one H200: sound runs alone.
DEVICE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/h200-computation.json").read_text()
)
TOLERANCE = 0.1
# The same weights: in float32, on three tensor ranks, on two pipeline ranks.
NOISE = ("bf16", "f32", "tp3", "pp2")
# Two neighbouring layers swapped, one of three tensor ranks with weights scaled by 1.1, fine-tunes.
DAMAGED = ("swapped", "scaled", "tuneda", "tunedb")


def server(name: str, recorded: str, **more: Any) -> Server:
    given = {
        "engine": name.partition(" ")[0],
        "process": f"{name.replace(' rank ', '-serve-')}",
        "host": f"host-of-{name[0]}",
        "weights": "w1",
        "same": "path:/m dtype=bfloat16",
        "instance": f"start of {name}",
        "prompts": RECORDED[recorded],
    }
    return Server(name=name, **{**given, **more})


def kept_of(recorded: str) -> dict[str, Any]:
    return judge([server("first", recorded)], {}, TOLERANCE).kept


@pytest.mark.parametrize("one", NOISE)
@pytest.mark.parametrize("other", NOISE)
def test_the_order_of_adding_up_is_within_the_tolerance(one: str, other: str) -> None:
    assert distance(RECORDED[one], RECORDED[other]).mean < TOLERANCE / 2
    assert not judge([server("a", one)], kept_of(other), TOLERANCE).wrong


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("sound", NOISE)
def test_a_restart_or_layout_that_computes_other_numbers_is_named(damage: str, sound: str) -> None:
    found = judge([server("a", damage, instance="later")], kept_of(sound), TOLERANCE)
    assert found.wrong == ["a"]
    (miss,) = found.measurements
    assert miss["where"] == "a on host-of-a"
    assert "log probabilities differ by 0." in miss["found"]
    assert "from first on host-of-f, kept for the same weights" in miss["found"]
    assert "within 0.1 in the mean" in miss["expected"]
    # What was right stays what is right.
    assert found.kept["weights"] == kept_of(sound)["weights"]
    assert "a" not in found.kept["servers"]


@pytest.mark.parametrize("damage", DAMAGED)
def test_of_three_ranks_the_one_that_leaves_the_others_is_named(damage: str) -> None:
    ranks = [server("a rank 0", "bf16"), server("a rank 1", damage), server("a rank 2", "tp3")]
    found = judge(ranks, {}, TOLERANCE)
    assert [one["where"] for one in found.measurements] == ["a rank 1 on host-of-a"]
    assert found.wrong == ["a"] and found.kept["servers"] == {}
    # Nothing is kept of an engine of which a rank is wrong.
    assert found.kept["weights"] == {}


def test_of_two_with_different_weights_both_are_named_since_nobody_knows_which_is_right() -> None:
    tunes = [server("a", "tuneda"), server("b", "tunedb", weights="w2")]
    found = judge(tunes, {}, TOLERANCE)
    assert found.wrong == ["a", "b"]
    words = [one["found"] for one in found.measurements]
    assert all("which of them is right is not known" in one for one in words)
    assert "from b on host-of-b; weights w1 here, w2 there" in words[0]


def test_the_one_that_passed_before_is_right() -> None:
    kept = judge([server("a", "tuneda")], {}, TOLERANCE).kept
    again = server("a", "tuneda", known=True, prompts=())
    found = judge([again, server("b", "tunedb")], kept, TOLERANCE)
    assert found.wrong == ["b"]
    assert found.kept["servers"] == {"a": "start of a"}
    # With other weights of the same name it has no numbers kept, and is compared all the same.
    assert judge([again, server("b", "tunedb", weights="w2")], kept, TOLERANCE).wrong == ["b"]


def test_a_converged_run_keeps_what_was_kept() -> None:
    first = judge([server("a", "bf16"), server("b", "f32")], {}, TOLERANCE)
    assert not first.wrong and first.compared == 2
    known = [server(name, "bf16", known=True, prompts=()) for name in ("a", "b")]
    assert judge(known, first.kept, TOLERANCE).kept == first.kept


def test_models_that_are_not_the_same_are_not_compared() -> None:
    other = server("b", "swapped", same="path:/other dtype=bfloat16")
    assert not judge([server("a", "bf16"), other], {}, TOLERANCE).wrong


def test_numbers_that_are_none_and_other_tokens_are_named() -> None:
    prompts = json.loads(json.dumps(RECORDED["bf16"]))
    prompts[0]["logprobs"][2] = None
    (miss,) = judge([server("a", "bf16", prompts=prompts)], {}, TOLERANCE).measurements
    assert miss["found"] == "1 numbers of fixed prompts are not finite"
    prompts = json.loads(json.dumps(RECORDED["bf16"]))
    prompts[1]["tokens"][0] += 1
    (miss,) = judge([server("a", "bf16", prompts=prompts)], kept_of("bf16"), TOLERANCE).measurements
    assert miss["found"].startswith("it reads the prompts as other tokens from first")


def test_a_server_without_numbers_is_said_and_is_not_wrong() -> None:
    silent = replace(server("a", "bf16", prompts=()), refused="HTTP 400: not supported")
    found = judge([silent, server("b", "bf16")], {}, TOLERANCE)
    assert not found.wrong and found.compared == 1
    assert found.notes == ["a not compared: HTTP 400: not supported"]
    assert "a" not in found.kept["servers"]


def test_what_changes_right_numbers_is_part_of_the_conditions_and_a_layout_is_not() -> None:
    engine = {
        "model": "o/m",
        "model_source": "hub",
        "arguments": ["--dtype", "float32", "--tensor-parallel-size", "2", "--quantization=fp8"],
        "environment": {"VLLM_ATTENTION_BACKEND": "FLASHINFER"},
    }
    told = conditions(engine, "0.32.0", "nvidia")
    assert told.startswith(
        "hub:o/m accelerator=nvidia attention-backend=FLASHINFER dtype=float32 quantization=fp8 "
        "vllm=0.32.0 prompts="
    )
    other = {**engine, "arguments": ["--dtype", "float32", "--quantization=fp8"]}
    assert conditions(other, "0.32.0", "nvidia") == told
    assert conditions(other, "0.33.0", "nvidia") != told


def test_a_real_device_computes_the_same_after_a_restart() -> None:
    gap = distance(DEVICE["compiled"], DEVICE["restarted"])
    assert (gap.mean, gap.worst) == (0.0, 0.0)


def test_eager_and_compiled_runs_of_a_real_device_are_within_the_tolerance() -> None:
    assert 0.04 < distance(DEVICE["compiled"], DEVICE["eager"]).mean < TOLERANCE


@pytest.mark.parametrize("run", ["compiled", "eager"])
def test_damage_is_told_from_the_noise_between_a_device_and_a_processor(run: str) -> None:
    assert all(distance(DEVICE[run], RECORDED[one]).mean < TOLERANCE / 2 for one in NOISE)
    assert all(distance(DEVICE[run], RECORDED[one]).mean > 2 * TOLERANCE for one in DAMAGED)
