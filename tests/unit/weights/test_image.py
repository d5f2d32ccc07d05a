"""Who gets the tar of an image, and from whom."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.planner.problem import PlanError
from vllm_ansible.weights.image import TAR, manifest, way

FILE = "/data/engine.tar"


def look(loaded: bool = False, size: int = 0) -> dict[str, Any]:
    return {"loaded": loaded, "tar_bytes": size}


def test_nobody_who_has_it_gets_it() -> None:
    assert way(FILE, {"a": look(loaded=True), "b": look(size=7)}, 7).upstream == {}


def test_it_enters_once_and_goes_from_host_to_host() -> None:
    found = way(FILE, {name: look() for name in "abc"}, 7)
    assert (found.entry, found.copied, found.size) == ("a", True, 7)
    before = {host: asked[TAR]["before"] for host, asked in found.upstream.items()}
    assert before == {"a": [], "b": ["a"], "c": ["b", "a"]}


def test_a_host_that_has_it_passes_it_on_and_the_controller_sends_nothing() -> None:
    found = way(FILE, {"a": look(), "b": look(loaded=True, size=9), "c": look(loaded=True)}, 0)
    assert (found.entry, found.copied, found.size) == ("b", False, 9)
    assert found.upstream["a"][TAR]["before"] == ["b"]
    assert "c" not in found.upstream


def test_a_tar_that_nobody_has_is_refused() -> None:
    with pytest.raises(PlanError, match="neither on a host nor on the controller: /data/engine"):
        way(FILE, {"a": look()}, 0)


def test_two_different_tars_are_refused() -> None:
    looks = {"a": look(), "b": look(size=9), "c": look(size=5)}
    with pytest.raises(PlanError, match="9 bytes on b, 5 bytes on c"):
        way(FILE, looks, 0)


def test_the_store_sees_a_model_of_one_file() -> None:
    ((slug, told),) = manifest("image-1", 7, "f" * 64).items()
    assert slug == "image-1"
    assert told["files"] == [{"name": TAR, "bytes": 7, "sha256": "f" * 64}]
