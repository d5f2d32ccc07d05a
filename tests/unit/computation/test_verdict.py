"""Log probabilities of a real model and of its damaged copies: each is named, and noise is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.computation.distance import distance
from vllm_ansible.computation.verdict import Limits, Server, Verdict, known_start
from vllm_ansible.computation.verdict import judge as judged

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/smollm2-computation.json").read_text()
)
# The same model on one H200: sound runs alone.
DEVICE: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/h200-computation.json").read_text()
)
TOLERANCE = 0.1
LIMITS = Limits(TOLERANCE, 0.37)
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


def judge(
    servers: list[Server], kept: dict[str, Any], tolerance: float = TOLERANCE, again: bool = False
) -> Verdict:
    return judged(servers, kept, replace(LIMITS, tolerance=tolerance), again)


def start_of(name: str, weights: str = "w1") -> dict[str, str]:
    return {"instance": f"start of {name}", "key": f"path:/m dtype=bfloat16 {weights}"}


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
    assert found.kept["servers"] == {"a": start_of("a")}
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


def test_a_real_device_computes_the_same_after_a_restart() -> None:
    gap = distance(DEVICE["compiled"], DEVICE["restarted"])
    assert (gap.mean, gap.worst) == (0.0, 0.0)


def test_eager_and_compiled_runs_of_a_real_device_are_within_the_tolerance() -> None:
    assert 0.04 < distance(DEVICE["compiled"], DEVICE["eager"]).mean < TOLERANCE


@pytest.mark.parametrize("run", ["compiled", "eager"])
def test_damage_is_told_from_the_noise_between_a_device_and_a_processor(run: str) -> None:
    assert all(distance(DEVICE[run], RECORDED[one]).mean < TOLERANCE / 2 for one in NOISE)
    assert all(distance(DEVICE[run], RECORDED[one]).mean > 2 * TOLERANCE for one in DAMAGED)


def test_a_refusal_says_how_a_meant_change_is_taken() -> None:
    (miss,) = judge([server("a", "swapped", instance="later")], kept_of("bf16")).measurements
    assert "-e vllm_computation_again=true" in miss["fix"]
    assert "weights_rehash" in miss["fix"]
    # Two that differ need no new numbers: one of them is wrong.
    both = judge([server("a", "bf16"), server("b", "swapped")], {}).measurements
    assert all("again" not in one["fix"] for one in both)


def test_a_meant_change_takes_the_numbers_of_that_model_anew_and_leaves_the_others() -> None:
    other = server("b", "tuneda", same="path:/n dtype=bfloat16")
    kept = judge([server("a", "bf16"), other], {}).kept
    changed = [server("a", "swapped", instance="later"), replace(other, known=True, prompts=())]
    found = judge(changed, kept, again=True)
    assert not found.wrong
    assert "a: log probabilities differ by 0.3765" in found.notes[0]
    assert "vllm_computation_again" in found.notes[0]
    key = changed[0].key
    assert found.kept["weights"][key]["prompts"] == RECORDED["swapped"]
    assert found.kept["weights"][other.key] == kept["weights"][other.key]
    # From now on it is what is compared with.
    assert judge([server("a", "bf16", instance="third")], found.kept).wrong == ["a"]


@pytest.mark.parametrize("sound", [{"recorded": "tp3"}, {"recorded": "bf16", "known": True}])
def test_while_a_server_still_computes_what_is_kept_another_one_is_wrong(
    sound: dict[str, Any],
) -> None:
    kept = judge([server("a", "bf16"), server("b", "bf16")], {}).kept
    right = server("b", **sound, **({"prompts": ()} if "known" in sound else {}))
    found = judge([server("a", "swapped", instance="later"), right], kept, again=True)
    assert found.wrong == ["a"]
    assert found.kept["weights"] == kept["weights"]


def test_numbers_that_nobody_has_left_are_not_taken_anew() -> None:
    kept = kept_of("bf16")
    found = judge([server("a", "tp3", instance="later")], kept, again=True)
    assert not found.wrong and found.kept["weights"] == kept["weights"]


def test_what_nobody_measured_is_a_warning_until_it_is_as_far_as_worse_damage() -> None:
    experts = {"unmeasured": "mixtures of experts", "instance": "later"}
    found = judge([server("a", "scaled", **experts)], kept_of("bf16"))
    assert not found.wrong
    assert "differ by 0.2155 in the mean of 191 tokens" in found.notes[0]
    assert "mixtures of experts" in found.notes[0]
    assert "vllm_computation_unmeasured_tolerance" in found.notes[0]
    # What was right stays what is compared with.
    assert found.kept["weights"] == kept_of("bf16")["weights"]
    for worse in ("swapped", "tuneda"):
        assert judge([server("a", worse, **experts)], kept_of("bf16")).wrong == ["a"]
    strict = Limits(TOLERANCE, TOLERANCE)
    assert judged([server("a", "scaled", **experts)], kept_of("bf16"), strict).wrong == ["a"]


def test_two_of_what_nobody_measured_are_compared_with_each_other_so_too() -> None:
    ranks = [
        server(f"a rank {rank}", recorded, unmeasured="quantized models")
        for rank, recorded in enumerate(("bf16", "scaled"))
    ]
    found = judge(ranks, {})
    assert not found.wrong
    assert "a rank 1 on host-of-a: log probabilities differ by 0.2155" in found.notes[0]


def test_a_start_whose_weights_changed_on_the_disk_is_known_by_those_that_it_loaded() -> None:
    kept = kept_of("bf16")
    start = known_start(kept, "first", "path:/m dtype=bfloat16")
    assert start == ("start of first", "w1")
    # Under other conditions nothing is kept that it could be compared with: it is asked.
    assert known_start(kept, "first", "path:/m dtype=float32") == ("", "")
    assert known_start(kept, "other", "path:/m dtype=bfloat16") == ("", "")
    assert known_start({**kept, "weights": {}}, "first", "path:/m dtype=bfloat16") == ("", "")
    # What an earlier release kept says of no weights.
    old = {**kept, "servers": {"first": "start of first"}}
    assert known_start(old, "first", "path:/m dtype=bfloat16") == ("", "")


def test_a_known_start_without_numbers_is_asked_by_the_next_run() -> None:
    kept = {"weights": {}, "servers": {"a": start_of("a")}}
    found = judge([server("a", "bf16", known=True, prompts=())], kept)
    assert not found.wrong and found.kept["servers"] == {}
    assert "the next run asks it" in found.notes[0]


@pytest.mark.parametrize("damage", DAMAGED)
def test_the_first_numbers_of_a_damaged_engine_leave_those_of_transformers(damage: str) -> None:
    found = judge([server("a", damage, reference=RECORDED["f32"])], {})
    assert found.wrong == ["a"] and found.kept["weights"] == {}
    (miss,) = found.measurements
    assert "from transformers, in float32" in miss["found"]
    assert "vllm_reference_gib=0" in miss["fix"]


@pytest.mark.parametrize("sound", ["bf16", "tp3", "pp2"])
def test_the_first_numbers_of_a_sound_engine_are_those_of_transformers(sound: str) -> None:
    found = judge([server("a", sound, reference=RECORDED["f32"])], {})
    assert not found.wrong and found.referenced == 1 and not found.unreferenced


@pytest.mark.parametrize("run", ["compiled", "eager"])
def test_the_first_numbers_of_a_real_device_are_those_of_transformers(run: str) -> None:
    # Of the device no greedy tokens were recorded, and those are not compared.
    prompts = [{**one, "greedy_logprobs": []} for one in DEVICE[run]]
    one = server("a", "bf16", prompts=prompts, reference=RECORDED["f32"])
    assert not judge([one], {}).wrong


def test_damaged_numbers_that_were_kept_before_are_dropped() -> None:
    right = server("a", "bf16", instance="later", reference=RECORDED["f32"])
    found = judge([right], kept_of("scaled"))
    assert not found.wrong
    assert "numbers of first on host-of-f are no longer kept" in found.notes[0]
    assert found.kept["weights"][right.key]["prompts"] == RECORDED["bf16"]


def test_why_nothing_was_computed_by_transformers_is_said() -> None:
    found = judge([server("a", "bf16", unreferenced="640 GiB of weights")], {})
    assert not found.wrong and found.unreferenced == {"a": "640 GiB of weights"}
    # Other tokens are no sign of a wrong engine there: the texts are read by another program.
    prompts = json.loads(json.dumps(RECORDED["f32"]))
    prompts[1]["tokens"][0] += 1
    found = judge([server("a", "bf16", reference=prompts)], {})
    assert not found.wrong and "other tokens" in found.unreferenced["a"]
    # A start that has passed is not compared again, and nothing is said of it.
    known = server("first", "bf16", known=True, prompts=(), unreferenced="640 GiB of weights")
    assert judge([known], kept_of("bf16")).unreferenced == {}
