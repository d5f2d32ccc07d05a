from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.plan.engines import KEYS, Probe, parse_engines
from vllm_ansible.plan.sizes import Layout
from vllm_ansible.problem import PlanError, as_result


def refusals(*engines: Any) -> list[str]:
    with pytest.raises(PlanError) as refusal:
        parse_engines(list(engines))
    return [problem.sentence() for problem in refusal.value.problems]


GOOD = {"name": "a", "model": "o/m"}


def test_an_engine_needs_a_name_and_a_model_only() -> None:
    (engine,) = parse_engines([GOOD])
    assert (engine.layout, engine.executor, engine.role, engine.probe) == (
        None,
        "ray",
        "serve",
        Probe(expect="Paris"),
    )


@pytest.mark.parametrize(
    ("arguments", "probe", "reasons"),
    [
        ({}, {}, False),
        ({"reasoning_parser": "deepseek_r1"}, {}, True),
        ({"reasoning-parser": "deepseek_r1"}, {"expect": "Paris"}, True),
        ({"reasoning_parser": ""}, {}, False),
        # A model that reasons only when it is asked to.
        ({"reasoning_parser": "deepseek_v3"}, {"reasoning": False}, False),
    ],
)
def test_an_engine_that_parses_reasoning_has_to_show_some(
    arguments: dict[str, Any], probe: dict[str, Any], reasons: bool
) -> None:
    (engine,) = parse_engines([{**GOOD, "vllm_args": arguments, "probe": probe}])
    assert engine.probe.reasoning is reasons


@pytest.mark.parametrize(
    ("model", "source", "name", "served"),
    [
        ("deepseek-ai/DeepSeek-R1", "hub", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
        ("/models/R1/", "path", "/models/R1/", "R1"),
        ("package:smollm2", "package", "smollm2", "smollm2"),
        ("random:deepseek-v3", "random", "deepseek-v3", "deepseek-v3"),
        ("s3://models/team/r1/", "s3", "s3://models/team/r1", "r1"),
    ],
)
def test_a_model_says_where_it_comes_from(model: str, source: str, name: str, served: str) -> None:
    (engine,) = parse_engines([{"name": "a", "model": model}])
    assert (engine.model_source, engine.model, engine.served_name) == (source, name, served)


def test_a_layout_may_name_one_size() -> None:
    (engine,) = parse_engines([{**GOOD, "layout": {"tensor": 2}}])
    assert engine.layout == Layout(tensor=2, pipeline=1)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"layuot": "auto"}, "did you mean layout?"),
        ({"name": "A"}, "small letter"),
        ({"name": "a" * 13}, "small letter"),
        ({"model": ""}, "a text"),
        ({"layout": "2x2"}, "auto, or {tensor: N, pipeline: M}"),
        ({"layout": {"tensor": 0}}, "auto, or {tensor: N, pipeline: M}"),
        ({"layout": {"tensor": True}}, "auto, or {tensor: N, pipeline: M}"),
        ({"layout": {}}, "auto, or {tensor: N, pipeline: M}"),
        ({"executor": "mpi"}, "did you mean mp?"),
        ({"role": "server"}, "did you mean serve?"),
        ({"nodes": 0}, "from 1 to 4096"),
        ({"port": 80}, "from 1024 to 65535"),
        ({"hosts": "n1"}, "a list of inventory host names"),
        ({"hosts": ["n1", "n1"]}, "every host once"),
        ({"vllm_args": {"tensor_parallel_size": 2}}, "use layout: {tensor: N} instead"),
        ({"vllm_args": {"api-key": "x"}}, "use vllm_api_key_file instead"),
        ({"vllm_args": {"api_ke": "x"}}, "use vllm_api_key_file instead"),
        ({"vllm_args": {"hos": "192.0.2.1"}}, "use data_plane_network or data_plane_interface"),
        ({"vllm_args": {"host=192.0.2.1": True}}, "use data_plane_network or data_plane_interface"),
        ({"vllm_args": {"--seed": 2}}, "write it as seed"),
        ({"vllm_args": [1]}, "a mapping of arguments"),
        ({"environment": {"HF_TOKEN": "x"}}, "no secret"),
        ({"vllm_args": {"hf-token": "x"}}, "no secret"),
        ({"environment": {"A B": "x"}}, "a variable's name"),
        ({"probe": {"promt": "x"}}, "{prompt: text, expect: text, reasoning: true or false}"),
    ],
)
def test_what_an_engine_cannot_be_is_refused_with_a_fix(wrong: dict[str, Any], words: str) -> None:
    (told,) = refusals({**GOOD, **wrong})
    assert words in told
    assert told.startswith("engines[0]")


def test_everything_wrong_is_told_at_once() -> None:
    told = refusals({"name": "A", "modle": "m"}, 3, {**GOOD, "executor": "x"}, GOOD)
    assert len(told) == 6
    assert told[-1].startswith("engines a and a both have name a")


def test_two_engines_on_one_port_are_refused() -> None:
    (told,) = refusals({**GOOD, "port": 8000}, {**GOOD, "name": "b", "port": 8000})
    assert "engines a and b both have port 8000" in told


@pytest.mark.parametrize("engines", [[], {}, "a", None])
def test_no_engine_at_all_is_refused(engines: object) -> None:
    with pytest.raises(PlanError, match="names no engine"):
        parse_engines(engines)


def test_flags_in_an_environment_are_numbers() -> None:
    (engine,) = parse_engines([{**GOOD, "environment": {"A": True, "B": 2, "C": False}}])
    assert engine.environment == {"A": "1", "B": "2", "C": "0"}


def test_a_lone_problem_is_reported_with_its_parts() -> None:
    with pytest.raises(PlanError) as refusal:
        parse_engines([{**GOOD, "port": 80}])
    result = as_result(refusal.value.problems)
    assert {"msg", "expected", "found", "where", "fix"} <= result.keys()
    assert str(result["msg"]).count("\n") == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), ANYTHING))
def test_whatever_stands_for_an_engine_is_read_or_refused_in_words(engine: dict[str, Any]) -> None:
    try:
        (read,) = parse_engines([engine])
    except PlanError as refusal:
        assert all(problem.fix and problem.expected for problem in refusal.problems)
        assert all(problem.sentence().endswith((".", "?")) for problem in refusal.problems)
    else:
        assert engine["name"] == read.name


@pytest.mark.parametrize(
    ("given", "expect"),
    [
        ({}, "Paris"),
        ({"probe": {"prompt": Probe.prompt}}, "Paris"),
        ({"probe": {"reasoning": False}}, "Paris"),
        # Said by name: whatever it answers, as for a base model.
        ({"probe": {"expect": ""}}, ""),
        ({"probe": {"prompt": "Which river?"}}, ""),
        ({"probe": {"prompt": "Which river?", "expect": "Seine"}}, "Seine"),
        ({"model": "random:llama"}, ""),
        ({"vllm_args": {"load-format": "dummy"}}, ""),
        ({"model": "random:llama", "probe": {"expect": "x"}}, "x"),
    ],
)
def test_the_default_question_expects_paris_of_every_trained_model(
    given: dict[str, Any], expect: str
) -> None:
    (engine,) = parse_engines([{**GOOD, **given}])
    assert engine.probe.expect == expect
