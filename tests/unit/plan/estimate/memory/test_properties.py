"""What holds for every model and every split of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.memory.budget import budget
from vllm_ansible.plan.estimate.memory.kv_cache import kv_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.plan.estimate.memory.weights import parameters, share, weights

Make = Callable[..., Model]
SHAPES = some.sampled_from(["llama", "tied", "mixture", "latent", "hybrid", "windows"])
POWERS = some.sampled_from([1, 2, 4, 8, 16])
SPLITS = some.builds(
    Split,
    tensor=POWERS,
    pipeline=some.integers(1, 6),
    data=some.sampled_from([1, 2, 4]),
    expert=some.booleans(),
)
QUANTIZED = some.sampled_from(
    [
        None,
        {"quant_method": "fp8"},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "awq", "bits": 4, "group_size": 32},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
    ]
)
GIB = 2**30

shared = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared
@given(name=SHAPES, split=SPLITS)
def test_stages_hold_every_layer_once(make: Make, name: str, split: Split) -> None:
    dealt = stages(make(name).layers, split)
    assert [index for layers in dealt for index in layers] == list(range(6))
    assert len(dealt) == split.pipeline and all(dealt)


@shared
@given(name=SHAPES, quantized=QUANTIZED, split=SPLITS)
def test_shards_add_up(make: Make, name: str, quantized: object, split: Split) -> None:
    """All ranks hold the model at least once; what is divided evenly, exactly once."""
    model = make(name, quantization_config=quantized)
    ranks = split.tensor * split.data
    assert sum(parameters(model, split)) * ranks >= model.bytes() * (1 - 1e-9)
    for tensor in model.tensors():
        part = share(tensor, split)
        divided = ranks if tensor.shard == "experts" else split.tensor
        assert part * divided >= tensor.bytes * (1 - 1e-9)
        even = tensor.units % divided == 0
        shards = tensor.shard in ("column", "row", "vocab") and tensor.role != "shared_expert"
        if even and shards:
            assert part * divided == pytest.approx(tensor.bytes)


@shared
@given(name=SHAPES, quantized=QUANTIZED, split=SPLITS)
def test_more_tensor_parallelism_never_needs_more_memory(
    make: Make, name: str, quantized: object, split: Split
) -> None:
    model = make(name, quantization_config=quantized)
    wider = Split(2 * split.tensor, split.pipeline, split.data, split.expert)
    for narrow, wide in zip(weights(model, split), weights(model, wider), strict=True):
        assert wide <= narrow
    tokens = zip(kv_bytes_per_token(model, split), kv_bytes_per_token(model, wider), strict=True)
    assert all(wide <= narrow for narrow, wide in tokens)


@shared
@given(name=SHAPES, split=SPLITS)
def test_more_stages_never_need_more_memory_for_layers(make: Make, name: str, split: Split) -> None:
    model = make(name)
    whole = weights(model, Split(split.tensor, 1, split.data, split.expert))[0]
    assert max(weights(model, split)) <= whole


@shared
@given(name=SHAPES, split=SPLITS, memory=some.integers(GIB, 200 * GIB))
def test_the_same_question_has_the_same_answer(
    make: Make, name: str, split: Split, memory: int
) -> None:
    first = budget(make(name), split, memory, max_model_len=4096)
    assert budget(make(name), split, memory, max_model_len=4096) == first


@shared
@given(name=SHAPES, split=SPLITS, memory=some.integers(8 * GIB, 100 * GIB))
def test_a_band_is_ordered_and_more_memory_never_holds_less(
    make: Make, name: str, split: Split, memory: int
) -> None:
    asked = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 64}
    found = budget(make(name), split, memory, **asked)
    low, mid, high = found.kv_tokens
    assert 0 <= low <= mid <= high
    more = budget(make(name), split, 2 * memory, **asked)
    assert all(mine <= theirs for mine, theirs in zip(found.kv_tokens, more.kv_tokens, strict=True))
    assert not found.fits or more.fits
