"""Which engines can be held against transformers, and why the others cannot."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.computation.reference import GIB, references, skipped, unmeasured

ENGINE: dict[str, Any] = {
    **{"name": "chat", "model": "/m", "model_source": "path", "hosts": ["a", "b"]},
    "arguments": ["--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "2048"],
}
MODEL: dict[str, Any] = {
    **{"path": "/models/m", "fingerprint": "0123456789abcdef", "bytes": 272 << 20},
    **{"experts": 0, "quantized": False},
}
HOST = {"name": "a", "accelerator": "cpu"}


def test_a_small_dense_model_is_computed_on_the_first_host() -> None:
    (one,) = references([ENGINE], {"chat": MODEL}, HOST, 1.0, "0.32.0")
    assert one == {
        **{"engine": "chat", "weights": MODEL["fingerprint"]},
        **{"place": "/models/m", "skipped": ""},
    }
    assert references([ENGINE], {"chat": MODEL}, {**HOST, "name": "b"}, 1.0, "0.32.0") == []


@pytest.mark.parametrize(
    ("engine", "model", "why"),
    [
        ({}, {"bytes": 2 * GIB}, "2.00 GiB of weights, and vllm_reference_gib is 1"),
        ({}, {"quantized": True}, "its weights are quantized"),
        ({}, {"fingerprint": ""}, "no digest of its weights is known"),
        ({"model_source": "random"}, {}, "its weights are random numbers"),
        ({"arguments": ["--load-format", "dummy"]}, {}, "its weights are random numbers"),
        ({"arguments": ["--trust-remote-code"]}, {}, "it has code of its own"),
        ({"arguments": ["--quantization", "fp8"]}, {}, "quantization changes what it computes"),
        ({"arguments": ["--kv-cache-dtype=fp8"]}, {}, "kv-cache-dtype changes what it computes"),
        ({"arguments": ["--hf-overrides.rope_theta", "1"]}, {}, "hf-overrides"),
        ({"arguments": ["--kv-sharing-fast-prefill"]}, {}, "kv_sharing_fast_prefill"),
    ],
)
def test_what_cannot_be_computed_is_skipped_with_its_reason(
    engine: dict[str, Any], model: dict[str, Any], why: str
) -> None:
    assert skipped({**ENGINE, **engine}, {**MODEL, **model}, 1.0).startswith(why)


def test_it_can_be_switched_off() -> None:
    assert skipped(ENGINE, MODEL, 0) == "vllm_reference_gib is 0"
    assert skipped(ENGINE, MODEL, 1.0) == ""


@pytest.mark.parametrize(
    ("arguments", "model", "why"),
    [
        ([], {}, ""),
        (["--kv-cache-dtype", "auto"], {}, ""),
        (["--quantization", "fp8"], {}, "quantized models"),
        ([], {"quantized": True, "experts": 256}, "quantized models and mixtures of experts"),
        (["--kv-cache-dtype", "fp8"], {}, "quantized caches"),
    ],
)
def test_the_tolerance_was_measured_on_dense_models_alone(
    arguments: list[str], model: dict[str, Any], why: str
) -> None:
    assert unmeasured({**ENGINE, "arguments": arguments}, {**MODEL, **model}) == why
