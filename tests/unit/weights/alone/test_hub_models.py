"""A model of the hub on one host, from what the hub says of it to the record of what was proven."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.hub import Hub, Repository
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import hub_manifest, models
from vllm_ansible.node.weights.models import Model
from vllm_ansible.node.weights.safetensors import WeightsError

from ..passing.nodes import silent
from .model import MODEL, shard


def test_a_model_is_recorded_once_it_is_proven(wanted: dict[str, Any], hub: Hub) -> None:
    models_dir = wanted["models_dir"]
    assert models.look(MODEL, models_dir) is None
    result = weights.fetch_all([MODEL], wanted, silent)
    record = models.look(MODEL, models_dir)
    assert record is not None
    assert result == {"fingerprints": {MODEL.slug(): record["fingerprint"]}, "defects": []}
    assert record["revision"] == hub.repositories["org/tiny"].commit("main")
    names = [one["name"] for one in record["files"]]
    assert "pytorch_model.bin" not in names and len(names) == 5


@pytest.mark.parametrize("lost", ["model-2-of-2.safetensors", "1_Pooling/config.json"])
def test_one_lost_file_is_missed(wanted: dict[str, Any], lost: str) -> None:
    weights.fetch_all([MODEL], wanted, silent)
    Path(MODEL.place(wanted["models_dir"]), lost).unlink()
    assert models.look(MODEL, wanted["models_dir"]) is None
    weights.fetch_all([MODEL], wanted, silent)
    assert models.look(MODEL, wanted["models_dir"]) is not None


def test_for_what_the_hub_lets_wait_is_said_on_the_way(wanted: dict[str, Any], hub: Hub) -> None:
    told: list[str] = []
    hub.refuse(429, times=1, path="model-2-of-2", Retry_After="6")
    weights.fetch_all([MODEL], wanted, lambda *given: told.append(str(given[-1])))
    waits = [text for text in told if "the hub asks to wait" in text]
    # Another number each second: a wait that was asked for is no standstill.
    assert len(set(waits)) >= 2, told


def test_a_lost_file_alone_is_fetched_again(wanted: dict[str, Any], hub: Hub) -> None:
    weights.fetch_all([MODEL], wanted, silent)
    lost = Path(MODEL.place(wanted["models_dir"])) / "model-2-of-2.safetensors"
    lost.unlink()
    assert models.look(MODEL, wanted["models_dir"]) is None
    weights.fetch_all([MODEL], wanted, silent)
    assert models.look(MODEL, wanted["models_dir"]) is not None
    assert hub.sent["model-1-of-2.safetensors"] == len(shard("a"))
    assert hub.sent["model-2-of-2.safetensors"] == 2 * len(shard("b"))


def test_a_repository_that_lacks_a_tensor_is_refused(
    wanted: dict[str, Any], tree: Path, tmp_path: Path
) -> None:
    index = {"weight_map": {"a": "model-1-of-2.safetensors", "c": "model-2-of-2.safetensors"}}
    (tree / "model.safetensors.index.json").write_text(json.dumps(index))
    with Hub({"org/tiny": Repository(tree)}) as other:
        wanted["environment"]["HF_ENDPOINT"] = other.url
        wanted["store"]["manifests"] = {MODEL.slug(): hub_manifest.ask(MODEL, wanted)}
        with pytest.raises(WeightsError, match=r"model-2-of-2.safetensors is damaged"):
            weights.fetch_all([MODEL], wanted, silent)
    assert models.look(MODEL, wanted["models_dir"]) is None


def test_a_commit_is_asked_for_once(wanted: dict[str, Any], hub: Hub) -> None:
    pinned = Model("hub", "org/tiny", hub.repositories["org/tiny"].commit("main"))
    first = hub_manifest.ask(pinned, wanted)
    asked = len(hub.asked)
    assert hub_manifest.ask(pinned, wanted) == first
    assert len(hub.asked) == asked


def test_check_mode_asks_and_keeps_nothing(wanted: dict[str, Any], hub: Hub) -> None:
    other = Model("hub", "org/tiny", hub.repositories["org/tiny"].commit("main"))
    hub_manifest.ask(other, wanted, check=True)
    assert not (Path(wanted["models_dir"]) / ".store" / other.slug()).exists()


def test_what_the_hub_does_not_have_is_told_in_a_sentence(wanted: dict[str, Any]) -> None:
    with pytest.raises(WeightsError) as error:
        hub_manifest.ask(Model("hub", "org/unknown"), wanted)
    assert "org/unknown" in str(error.value)
    assert set(error.value.details) == {"expected", "found", "where", "fix"}


def test_a_gated_model_needs_the_token_of_somebody_who_may_read_it(
    wanted: dict[str, Any], tree: Path, tmp_path: Path
) -> None:
    gated = Repository(tree, gated=True, readers=frozenset({"ann"}))
    with Hub({"org/tiny": gated}, tokens={"hf_secret": "ann"}) as hub:
        wanted["environment"]["HF_ENDPOINT"] = hub.url
        with pytest.raises(WeightsError, match="org/tiny is gated") as error:
            hub_manifest.ask(MODEL, wanted)
            wanted["store"]["manifests"] = {MODEL.slug(): hub_manifest.ask(MODEL, wanted)}
            weights.fetch_all([MODEL], wanted, silent)
        assert "huggingface_token_file" in error.value.details["fix"]
        token = tmp_path / "token"
        token.write_text("hf_secret")
        wanted["token_path"] = str(token)
        weights.fetch_all([MODEL], wanted, silent)
    assert models.look(MODEL, wanted["models_dir"]) is not None
