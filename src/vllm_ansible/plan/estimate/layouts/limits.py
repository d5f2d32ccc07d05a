"""What an engine refuses, whatever the memory: each limit a sentence with its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.layouts.candidate import Candidate

VOCABULARY_PADDING = 64
# Multi-node start hangs without a word unless custom all-reduce is off (vllm#53894).
HANGS_ACROSS_NODES = ((0, 26), (0, 29))
# All layers' cache is checked against the smallest stage (vllm#34076, vllm#32105).
CHECKS_ALL_LAYERS = ((0, 14, 1), (0, 17))


@frozen
class Facts:
    """What the limits ask of a model, found once."""

    heads: int
    kv_heads: int
    layers: int
    experts: int
    vocabulary: int
    dense_widths: tuple[int, ...]
    expert_widths: tuple[int, ...]
    block: int | None
    latent: bool
    tied: bool
    fp8: bool
    tensor_divides: int
    whole: bool


def facts(model: Model) -> Facts:
    """Return the facts of a model that decide which splits it allows."""
    dense: set[int] = set()
    routed: set[int] = set()
    for layer in model.layers:
        for one in layer.tensors:
            if not one.name.endswith(".weight"):
                continue
            if one.role in ("mlp", "shared_expert") and one.shard in ("column", "row"):
                dense.add(one.units)
            elif one.role == "experts":
                routed.add(one.units)
    return Facts(
        heads=model.heads,
        kv_heads=model.kv_heads,
        layers=len(model.layers),
        experts=max((layer.experts for layer in model.layers), default=0),
        vocabulary=model.vocab,
        dense_widths=tuple(sorted(dense)),
        expert_widths=tuple(sorted(routed)),
        block=model.block if model.quantization == "fp8 per block" else None,
        latent=any(layer.kv.kind == "mla" for layer in model.layers),
        tied=model.tied,
        fp8=model.quantization.startswith("fp8"),
        tensor_divides=model.tensor_divides,
        whole=model.whole,
    )


def refusals(
    model: Facts,
    candidate: Candidate,
    accelerator: Accelerator,
    offload_gib: float = 0.0,
) -> Iterator[str]:
    """Yield why this split of this model cannot run, one sentence for each reason."""
    tensor, pipeline = candidate.tensor, candidate.pipeline
    if model.heads % tensor:
        yield f"{model.heads} attention heads cannot be shared by TP{tensor}"
    elif not model.latent and model.kv_heads % tensor and tensor % model.kv_heads:
        yield (f"{model.kv_heads} KV heads can be neither shared nor repeated evenly by TP{tensor}")
    if model.tensor_divides and model.tensor_divides % tensor:
        yield f"vLLM's class of this model is made for TP that divides {model.tensor_divides}"
    if model.whole and pipeline > 1:
        yield (
            "no pipeline stages are planned for this model: vLLM's class has none, or allows them "
            "at some layers alone"
        )
    if pipeline > model.layers:
        yield f"{model.layers} layers make no {pipeline} pipeline stages"
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    if padded % tensor:
        yield f"a vocabulary of {padded} rows cannot be shared by TP{tensor}"
    yield from _block_refusals(model, candidate)
    ranks = tensor * candidate.data
    if candidate.expert and not model.experts:
        yield f"the model has no experts to spread over EP{ranks}"
    elif candidate.expert and model.experts < ranks:
        yield f"{model.experts} experts cannot be spread over EP{ranks}"
    if model.fp8 and (instead := platform(accelerator.kind).no_fp8):
        yield f"{accelerator.name} has no FP8: {instead}"
    if offload_gib and (model.tied or model.latent):
        why = "latent attention (MLA)" if model.latent else "tied embeddings"
        yield f"{offload_gib:g} GiB of weights in host memory fail with {why} (vllm#12541)"


def _block_refusals(model: Facts, candidate: Candidate) -> Iterator[str]:
    """Yield the widths that leave a rank with a part of a quantization block."""
    if not model.block:
        return
    for what, widths, ranks in (
        ("MLP", model.dense_widths, candidate.tensor),
        (
            "expert",
            () if candidate.expert else model.expert_widths,
            candidate.tensor * candidate.data,
        ),
    ):
        for width in widths:
            part = width / ranks
            if part % model.block:
                yield (
                    f"{what} width {width} over {ranks} ranks is {part:g}, "
                    f"which is no multiple of the FP8 block of {model.block} (vllm#12256)"
                )
                return


def affected(version: tuple[int, ...] | None, span: tuple[tuple[int, ...], ...]) -> bool:
    """Tell whether a version lies in a span, its end left out; an unknown one does not."""
    return version is not None and span[0] <= version < span[1]
