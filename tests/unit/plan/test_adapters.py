"""LoRA adapters: by which names they are asked for, and which an inventory may not give them."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.plan.adapters import adapter_problems, adapters_of
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan
from vllm_ansible.problem import PlanError

FORMS: list[Any] = [
    ["law=/a/law", "/a/b=c"],
    ["law=/a/law=2"],
    "law=/a/law",
    {"name": "law", "path": "/a/law"},
    [{"name": "law", "path": "/a/law", "base_model_name": "m"}],
    ['{"name": "law", "path": "/a/law"}'],
]


def engine(name: str, modules: Any, **more: Any) -> dict[str, Any]:
    arguments = {"enable_lora": True, "lora_modules": modules}
    return {
        "name": name,
        "model": f"o/{name}",
        "layout": {"tensor": 1},
        "vllm_args": arguments,
    } | more


def refused(*engines: dict[str, Any]) -> list[str]:
    with pytest.raises(PlanError) as error:
        parse_engines(list(engines))
    return [one.sentence() for one in error.value.problems]


@pytest.mark.parametrize("modules", FORMS)
def test_a_plan_has_the_adapters_of_each_form_that_vllm_takes(modules: Any) -> None:
    engines = parse_engines([engine("a", modules)])
    (planned,) = make_plan("c", engines, [Capacity.whole("h1", "cpu", 1)]).engines
    more = ["/a/b"] if len(modules) == 2 and isinstance(modules, list) else []
    assert adapters_of(planned.to_dict()) == ["law", *more]
    assert adapters_of({"arguments": ["--lora-modules=law=/a/law", "--max-loras", "2"]}) == ["law"]


@pytest.mark.parametrize("modules", ["law", ["law="], ["=/a"], [7], [{"name": "law"}], ["a b=/c"]])
def test_what_vllm_cannot_read_or_no_client_can_ask_for_is_refused(modules: Any) -> None:
    (found,) = refused(engine("a", modules))
    assert "expected NAME=PATH, or a mapping with name and path; no space" in found


@pytest.mark.parametrize("modules", ["", [], ["", "law=/a"], None])
def test_what_vllm_passes_over_is_no_adapter(modules: Any) -> None:
    assert len(parse_engines([engine("a", modules)])) == 1


def test_adapters_of_an_engine_without_places_for_them_are_refused() -> None:
    arguments = {"lora-modules": ["law=/a/law"]}
    (found,) = refused(engine("a", None, vllm_args=arguments))
    assert "expected enable_lora: true beside lora_modules, found None" in found


def test_at_a_door_one_name_means_one_model() -> None:
    def said(*engines: dict[str, Any]) -> str:
        return " ".join(one.message for one in adapter_problems(parse_engines(list(engines))))

    two = engine("b", ["law=/b/law"])
    assert "adapter law of engine b has the name of an adapter of o/a" in said(
        engine("a", ["law=/a/law"]), two
    )
    assert "adapter o/b of engine a has the name of the model of engine b" in said(
        engine("a", ["o/b=/a/law"]), two
    )
    twice = engine("a", ["law=/a/law", "law=/a/2"])
    assert "has the name of another adapter of this engine" in said(twice)


def test_the_engines_of_a_set_have_the_same_adapters() -> None:
    apart = [
        engine("read", ["law=/a"], role="prefill", served_name="m", model="o/m"),
        engine("write", ["law=/a"], role="decode", served_name="m", model="o/m"),
    ]
    assert len(parse_engines(apart)) == 2
    apart[0]["vllm_args"] = {}
    assert "lora_modules" in str(refused(*apart))


def test_engines_of_one_model_may_share_an_adapter() -> None:
    engines = [engine(name, ["law=/a/law"], model="o/m") for name in ("a", "b")]
    assert adapter_problems(parse_engines(engines)) == []
