"""Every architecture that vLLM registers: put together here, or estimated with a word of warning.

tests/data/README.md says where the names, the defaults and the numbers of parameters are from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.plan.estimate.architectures.config import Settings
from vllm_ansible.plan.estimate.architectures.families import registry
from vllm_ansible.plan.estimate.architectures.source import load
from vllm_ansible.plan.estimate.architectures.understand import understand
from vllm_ansible.plan.estimate.memory.budget import budget
from vllm_ansible.plan.estimate.memory.kv_cache import kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.memory.weights import weights

ROOT = Path(__file__).parents[5]
PUBLIC = ROOT / "tests/data/public"
VLLM: dict[str, Any] = json.loads((PUBLIC / "vllm-architectures.json").read_text("utf-8"))
PARAMETERS: dict[str, Any] = json.loads((PUBLIC / "parameters.json").read_text("utf-8"))
KINDS = tuple(kind for kind in VLLM if kind not in ("vllm", "how", "defaults"))
KNOWN = {*registry.DECODERS, *registry.TOWERS, *registry.DRAFTS}
TOTAL = 80 * 2**30
# What a configuration says that names nothing in an own way.
USUAL = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}


def estimated(directory: Path, architecture: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Return what is said of a model of which there are a configuration and an index."""
    given = {"architectures": [architecture], **config}
    (directory / "config.json").write_text(json.dumps(given), encoding="utf-8")
    names = [f"model.layers.{layer}.mlp.weight" for layer in range(5)]
    index = {"metadata": {"total_size": TOTAL}, "weight_map": dict.fromkeys(names, "a")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    model = load(str(directory))
    assert budget(model, Split(1), 200 * 2**30).stages[0].weights > 0
    return model.assumed


def test_the_names_are_those_of_the_locked_release() -> None:
    """A new lock asks for new names."""
    lock = (ROOT / "requirements/engine-cuda.txt").read_text(encoding="utf-8")
    found = re.search(r"^vllm==([0-9.]+)", lock, re.M)
    assert found and found[1] == VLLM["vllm"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_registered_architecture_is_known_or_estimated_with_a_warning(
    kind: str, tmp_path: Path
) -> None:
    for architecture in VLLM[kind]:
        if architecture in registry.TOWERS:
            assert registry.builder(registry.TOWERS[architecture][0])
        elif architecture in KNOWN:
            assert registry.builder(architecture)
        else:
            config = VLLM["defaults"].get(architecture, USUAL)
            said = estimated(tmp_path, architecture, config)
            assert any("is not known" in one or "is taken for" in one for one in said), architecture


def test_what_is_known_is_registered_by_some_release() -> None:
    """Names that 0.32 has not: those of checkpoints, of their text part, or of older releases."""
    registered = {name for kind in KINDS for name in VLLM[kind]}
    assert len(KNOWN & registered) >= 94
    assert len([name for name in VLLM["text"] if name in KNOWN]) >= 61


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_family_has_the_parameters_of_its_reference(name: str) -> None:
    """As transformers builds it without weights: of Hy3 295 billion, of Seed-OSS 36.2."""
    kept = PARAMETERS[name]
    model = understand(Settings(kept["config"], name), name)
    elements = sum(one.elements for one in model.tensors())
    assert elements == pytest.approx(kept["parameters"], rel=2e-6)


@pytest.mark.parametrize(
    ("name", "changes", "bytes_of_a_token", "kinds"),
    [
        ("hy_v3", {}, 80 * 2 * 8 * 128 * 2, {"gqa"}),
        ("laguna", {"gating": "per-element"}, 40 * 2 * 8 * 128 * 2, {"gqa"}),
        ("afmoe", {}, 32 * 2 * 16 * 128 * 2, {"gqa", "sliding"}),
        ("lfm2_moe", {}, 6 * 2 * 8 * 64 * 2, {"gqa", "linear"}),
        ("muse_glimmer", {}, 52 * 2 * 2 * 128 * 2, {"gqa", "sliding"}),
        ("glm5_next", {}, 11 * 512 * 2, {"mla", "linear"}),
    ],
)
def test_what_a_token_leaves_behind(
    name: str, changes: dict[str, Any], bytes_of_a_token: int, kinds: set[str]
) -> None:
    model = understand(Settings({**PARAMETERS[name]["config"], **changes}, name), name)
    kept = [layer.kv for layer in model.layers]
    assert {one.kind for one in kept} == kinds
    sizes = [
        one.heads * (one.head_size + one.value_size) * 2 for one in kept if one.kind != "linear"
    ]
    assert sum(sizes) == bytes_of_a_token


def test_a_convolution_keeps_the_last_inputs_alone() -> None:
    model = understand(Settings(PARAMETERS["lfm2_moe"]["config"], "lfm2"), "lfm2")
    states = {one.kv.state_bytes for one in model.layers if one.kv.kind == "linear"}
    assert states == {2048 * 2 * 2}


def test_an_indexer_of_pools_keeps_a_sixteenth_of_a_key_for_a_token() -> None:
    """132 bytes for 16 tokens (vLLM 0.32's `Glm5NextIndexerCache`), beside 512 latent elements."""
    model = understand(Settings(PARAMETERS["glm5_next"]["config"], "glm"), "glm")
    assert {one.kv.extra_bytes_per_token for one in model.layers if one.kv.kind == "mla"} == {8.25}
    (each,) = kv_bytes_per_token(model, Split(8))
    assert each == round(11 * (512 * 2 + 8.25))
    # Keys of 128 elements for 64 heads in fp32, and three convolutions over the last 3 inputs.
    states = {one.kv.state_bytes for one in model.layers if one.kv.kind == "linear"}
    assert states == {64 * 128 * 128 * 4 + 3 * 64 * 128 * 3 * 2}


def test_muse_glimmer_sees_a_window_in_three_of_four_layers() -> None:
    config = PARAMETERS["muse_glimmer"]["config"]
    text = {key: one for key, one in config["text_config"].items() if key != "layer_types"}
    told = understand(Settings(config, "m"), "m")
    usual = understand(Settings({**config, "text_config": text}, "m"), "m")
    assert [one.kv for one in told.layers] == [one.kv for one in usual.layers]
    assert [one.kv.window for one in told.layers[:4]] == [2048, 2048, 2048, None]
    # The tower's blocks are whole on each rank, its attention is divided.
    whole, halved = (weights(told, Split(tensor))[0] for tensor in (1, 2))
    plain = 50 * 2 * 1536 * 8960 * 2
    assert halved > whole / 2 + 0.49 * plain


def test_phi_4_multimodal_is_phi_4_mini_and_two_encoders() -> None:
    """3.84 billion of the decoder (its card), 0.41 and 0.47 of the encoders; 5.57 with adapters."""
    shape = {
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "vocab_size": 200064,
        "tie_word_embeddings": True,
    }
    whole, decoder = (
        understand(Settings({"architectures": [name], **shape}, name), name)
        for name in ("Phi4MMForCausalLM", "Phi3ForCausalLM")
    )
    assert whole.layers == decoder.layers
    counts = [sum(one.elements for one in model.tensors()) for model in (decoder, whole)]
    assert counts[0] == pytest.approx(3.84e9, rel=0.003)
    assert counts[1] - counts[0] == pytest.approx(0.878e9, rel=0.002)
    assert any("adapters" in one for one in whole.assumed)
