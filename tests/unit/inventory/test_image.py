"""What does not go together around the engine's image, each told as one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.inventory.image import wrong
from vllm_ansible.inventory.variables import Unresolved
from vllm_ansible.plan.engines import parse_engines
from vllm_ansible.plan.layout import Capacity
from vllm_ansible.plan.plan import make_plan

SHA = "a" * 64
TAR = {"engine_source": "image", "engine_image_file": "/d/e.tar", "engine_image_sha256": SHA}
NAMED = {"engine_source": "image", "engine_image": "docker.io/vllm/vllm-openai:v0.11.0"}


def sentences(variables: dict[str, Any], plan: Any = None) -> list[str]:
    return [problem.sentence() for problem in wrong(variables, plan, lambda name: f"at {name}")]


@pytest.mark.parametrize("right", [TAR, NAMED, {"engine_source": "environment"}])
def test_what_is_whole_is_accepted(right: dict[str, Any]) -> None:
    assert sentences(right) == []


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"engine_image": "a/b:1"}, "engine_image says something of an image, and engine_source"),
        ({"engine_source": "image"}, "needs either engine_image or engine_image_file"),
        ({**TAR, "engine_image": "a/b:1"}, "needs either engine_image or engine_image_file"),
        ({**TAR, "engine_image_sha256": ""}, "engine_image_file needs engine_image_sha256"),
        ({**NAMED, "engine_image_sha256": SHA}, "engine_image_sha256 needs engine_image_file"),
        ({**TAR, "environment_path": "/e"}, "environment_path and engine_source: image exclude"),
        ({**TAR, "engine_build": [{}]}, "engine_build and engine_source: image exclude"),
        ({**TAR, "engine_image_packages": ["a>=1"]}, "holds 'a>=1', which is not pinned"),
        ({**TAR, "engine_image_packages": ["--index-url=x==1"]}, "which is not pinned"),
        ({**TAR, "engine_image_mounts": ["t.jinja"]}, "which is not an absolute path"),
        ({**TAR, "engine_image_mounts": ["/a:/b"]}, "which is not an absolute path"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(variables: dict[str, Any], told: str) -> None:
    (sentence,) = sentences(variables)
    assert told in sentence
    assert "(at " in sentence


def test_a_password_that_an_image_would_tell_is_refused_and_not_told() -> None:
    sources = {"PIP_INDEX_URL": "https://me:s3cret@mirror/simple", "HTTPS_PROXY": "http://p:3128"}
    asked = {**TAR, "engine_image_packages": ["a==1"], "sources_environment": sources}
    (sentence,) = sentences(asked)
    assert sentence.startswith("PIP_INDEX_URL of sources_environment holds a password")
    assert "s3cret" not in sentence
    # Without packages nothing of it comes into an image.
    assert sentences({**asked, "engine_image_packages": []}) == []
    del sources["PIP_INDEX_URL"]
    assert sentences(asked) == []


@pytest.mark.parametrize(("executor", "count"), [("ray", 1), ("mp", 0)])
def test_ray_is_refused_in_words(executor: str, count: int) -> None:
    engines = parse_engines([{"name": "chat", "model": "o/m", "executor": executor}])
    plan = make_plan("c", engines, [Capacity.whole("h", "cpu", 1)])
    told = sentences(TAR, plan)
    assert len(told) == count
    assert all("is planned on Ray, which is not run inside images" in one for one in told)
    assert sentences({"engine_source": "environment"}, plan) == []


def test_a_set_of_prefill_and_decode_is_refused_before_machines_are_rented() -> None:
    engines = parse_engines(
        [
            {
                "name": name,
                "model": "o/m",
                "served_name": "m",
                "role": name,
                "layout": {"tensor": 1},
            }
            for name in ("prefill", "decode")
        ]
    )
    plan = make_plan("c", engines, [Capacity.whole("h", "cpu", 2)])
    told = sentences(TAR, plan)
    assert len(told) == 2
    assert all("which an engine in an image cannot have" in one for one in told)
    assert all("engine_source: environment" in one for one in told)
    assert sentences({"engine_source": "environment"}, plan) == []


def test_what_cannot_be_resolved_is_not_judged() -> None:
    assert sentences({**TAR, "engine_image_file": Unresolved("no such variable")}) == []
