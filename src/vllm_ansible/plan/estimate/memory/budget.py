"""Memory of each stage's largest rank: weights, overhead, and what is left for the KV cache."""

from __future__ import annotations

from dataclasses import astuple

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Model
from vllm_ansible.plan.estimate.memory.blocks import bytes_per_sequence, groups, holding
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.kernels import Kernels
from vllm_ansible.plan.estimate.memory.lora import Slots, slot_bytes
from vllm_ansible.plan.estimate.memory.overhead import Band, Term, overhead, total, unknown
from vllm_ansible.plan.estimate.memory.release import release
from vllm_ansible.plan.estimate.memory.split import Split, stages
from vllm_ansible.plan.estimate.memory.weights import weights
from vllm_ansible.problem import PlanError, Problem

GIB = 2**30
LARGE_DEVICE = 70 * GIB
# Sequences of a step by default, on large devices and on small ones or in older engines.
LARGE_BATCH = 1024
SMALL_BATCH = 256
AMPERE = 8.0
# From here on V0 cut prompts into chunks.
LONG_PROMPT = 32769


@frozen
class Stage:
    """One stage's largest rank, in bytes; `terms` are what the overhead is made of."""

    weights: int
    overhead: Band
    kv_bytes: Band
    terms: tuple[Term, ...]


@frozen
class Budget:
    """What a split leaves for the cache.

    `kv_tokens` and `max_concurrency` are of one engine: data-parallel engines have as much each.
    `fits` says that the likely overhead leaves room for one sequence of full length; `reasons` say
    why not, or what is close.
    """

    stages: tuple[Stage, ...]
    kv_tokens: tuple[int, int, int]
    max_concurrency: tuple[float, float, float]
    fits: bool
    reasons: tuple[str, ...]


def default_utilization(engine_version: str | None = None) -> float:
    """Return the part of a device that vLLM takes by default."""
    return 0.92 if release(engine_version) >= (0, 20, 0) else 0.90


def default_batch(
    memory_bytes: int,
    engine_version: str | None = None,
    length: int = LONG_PROMPT,
    device: str = "",
) -> tuple[int, int]:
    """Return the default tokens and sequences of a step on a device of this memory.

    An A100 is taken for a small device, whatever its memory. Before 0.8 a step took whole prompts,
    up to the longest. 0.8.0 to 0.8.3 ran 1024 sequences on any device (vllm#16158).
    """
    version = release(engine_version)
    if version < (0, 8, 0):
        return (max(length, 2048) if length < LONG_PROMPT else 2048), SMALL_BATCH
    small = "a100" in device.lower()
    if memory_bytes >= 160 * GIB:
        return 16384, LARGE_BATCH
    if memory_bytes >= LARGE_DEVICE and not small:
        return 8192, LARGE_BATCH
    return 2048, LARGE_BATCH if version < (0, 8, 4) else SMALL_BATCH


def default_block_size(model: Model, accelerator_kind: str = "cuda") -> int:
    """Return the tokens of a block: 64 for latent attention on CUDA, 128 on a CPU, else 16."""
    latent = any(layer.kv.kind == "mla" for layer in model.layers)
    if accelerator_kind == "cpu":
        return 16 if latent else 128
    return 64 if latent and accelerator_kind != "rocm" else 16


def budget(
    model: Model,
    split: Split,
    memory_bytes: int | tuple[int, ...],
    *,
    utilization: float | None = None,
    max_model_len: int | None = None,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    kv_cache_dtype: str = "auto",
    eager: bool = False,
    engine_version: str | None = None,
    accelerator_kind: str = "cuda",
    block_size: int | None = None,
    device: str = "",
    capability: float | None = None,
    lora: Slots | None = None,
    prefix_caching: bool | None = None,
) -> Budget:
    """Return the memory of every stage.

    `memory_bytes` is a device's memory as the driver reports it, or one for each stage; `device`
    is its name, `capability` NVIDIA's compute capability, which decides on the kernels that hold
    the weights. Without a name, a device of 8.0 is taken for an A100. `lora` are slots for
    adapters, which count as weights; states of prefixes are kept by `prefix_caching`. What is None
    is vLLM's default for the device. Raises PlanError for values that are no sizes.
    """
    memory = _memory(memory_bytes, split)
    part = default_utilization(engine_version) if utilization is None else utilization
    if isinstance(part, bool) or not 0 < part <= 1:
        raise _refused("gpu_memory_utilization", part, "more than 0 and at most 1")
    length = max_model_len if max_model_len is not None else model.max_context
    _whole("max_model_len", length)
    named = device or ("A100" if capability == AMPERE else "")
    tokens, sequences = default_batch(min(memory), engine_version, length, named)
    tokens = max_num_batched_tokens if max_num_batched_tokens is not None else tokens
    sequences = max_num_seqs if max_num_seqs is not None else sequences
    _whole("max_num_batched_tokens", tokens)
    _whole("max_num_seqs", sequences)
    dealt = stages(model.layers, split, engine_version)
    kernels = Kernels(accelerator_kind, capability)
    held = []
    for index, (layers, size) in enumerate(
        zip(dealt, weights(model, split, engine_version, kernels), strict=True)
    ):
        if lora:
            size += round(slot_bytes(model.layers[layers.start : layers.stop], split, lora))
        terms = overhead(
            model,
            split,
            model.layers[layers.start : layers.stop],
            max_num_batched_tokens=tokens,
            max_num_seqs=sequences,
            least_num_seqs=min(sequences, SMALL_BATCH) if max_num_seqs is None else None,
            eager=eager,
            engine_version=engine_version,
            accelerator_kind=accelerator_kind,
            last=index == len(dealt) - 1,
        )
        terms += unknown(model, size)
        beside = total(terms)
        room = part * memory[index] - size
        left = Band(room - beside.high, room - beside.mid, room - beside.low)
        held.append(Stage(size, beside, left, terms))
    block = block_size or default_block_size(model, accelerator_kind)
    request = Request(length, tokens, block, prefix_caching)
    shared = groups(model, split, request, kv_cache_dtype, engine_version)
    found = [
        holding(shared, sizes, request, engine_version, split.decode_context)
        for sizes in zip(*(astuple(one.kv_bytes) for one in held), strict=True)
    ]
    needed = bytes_per_sequence(shared)
    reasons = _reasons(held, needed, memory, part, length)
    if not eager and any(layer.kv.stateful for layer in model.layers):
        reasons += _too_few_states(found[1].blocks, sequences)
    return Budget(
        stages=tuple(held),
        kv_tokens=(found[0].tokens, found[1].tokens, found[2].tokens),
        max_concurrency=(found[0].concurrency, found[1].concurrency, found[2].concurrency),
        fits=all(one.kv_bytes.mid >= size for one, size in zip(held, needed, strict=True)),
        reasons=reasons,
    )


def _whole(name: str, value: object) -> None:
    """Refuse what is no whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refused(name, value, "a whole number from 1")


def _memory(memory_bytes: int | tuple[int, ...], split: Split) -> tuple[int, ...]:
    sizes = memory_bytes if isinstance(memory_bytes, tuple) else (memory_bytes,) * split.pipeline
    if len(sizes) != split.pipeline:
        raise _refused("memory of the stages", sizes, f"{split.pipeline} sizes")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | float) or size <= 0:
            raise _refused("memory of a device", size, "bytes, more than 0")
    return tuple(int(size) for size in sizes)


def _reasons(
    held: list[Stage],
    needed: tuple[float, ...],
    memory: tuple[int, ...],
    part: float,
    length: int,
) -> tuple[str, ...]:
    """Return a sentence with its numbers for each stage that does not fit, or may not."""
    told = []
    for index, (one, size) in enumerate(zip(held, needed, strict=True)):
        name = f"stage {index}" if len(held) > 1 else "a rank"
        asked = part * memory[index]
        numbers = (
            f"weights {one.weights / GIB:.1f} GiB and overhead {one.overhead.mid / GIB:.1f} GiB "
            f"(at most {one.overhead.high / GIB:.1f}) of {asked / GIB:.1f} GiB"
        )
        if one.kv_bytes.mid <= 0:
            told.append(f"{name} has no room for a KV cache: {numbers}")
        elif one.kv_bytes.mid < size:
            told.append(
                f"{name} leaves {one.kv_bytes.mid / GIB:.1f} GiB for the KV cache, and one "
                f"sequence of {length} tokens takes {size / GIB:.1f} GiB: {numbers}"
            )
        elif one.kv_bytes.low < size:
            told.append(
                f"{name} fits unless the overhead is at the high end of its band: {numbers}"
            )
    return tuple(told)


def _too_few_states(blocks: int, sequences: int) -> tuple[str, ...]:
    """Return the refusal of captured graphs where a state for each sequence has no block.

    vLLM checks it at start: every sequence of a captured step needs one block for its state.
    """
    if blocks >= sequences:
        return ()
    return (
        f"the cache has {blocks} blocks for the states of {sequences} sequences: graphs are "
        f"captured only with max_num_seqs of at most {blocks}",
    )


def _refused(name: str, value: object, expected: str) -> PlanError:
    message = f"{name} is {str(value)[:40]}, which is not {expected}"
    return PlanError(Problem(message, expected, str(value)[:40], name, "correct it"))
