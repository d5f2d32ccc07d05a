"""What an engine needs beside weights and cache, as a band: each term with its cause.

vLLM profiles one step of the largest batch at start and takes from the cache what it needed:
activations of the batch, the sampler's copies of the logits, memory outside of torch (contexts,
NCCL's buffers, libraries' workspaces) and, from 0.20, an estimate of the captured graphs. A term is
low, likely and high; the factors are counted from the code or cited, and none is fitted to a
deployment.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Layer, Model
from vllm_ansible.plan.estimate.memory.release import Release, release
from vllm_ansible.plan.estimate.memory.split import Split

GIB = 2**30
# Tokens for which `fused_experts` allocates at once.
EXPERT_CHUNK = 32768


@frozen
class Band:
    """Bytes: at least, likely, at most."""

    low: float
    mid: float
    high: float

    def __add__(self, other: Band) -> Band:
        """Return the sum of two bands."""
        return Band(self.low + other.low, self.mid + other.mid, self.high + other.high)


@frozen
class Term:
    """One cause of overhead."""

    name: str
    band: Band


def overhead(
    model: Model,
    split: Split,
    layers: Sequence[Layer],
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    least_num_seqs: int | None = None,
    eager: bool = False,
    engine_version: str | None = None,
    accelerator_kind: str = "cuda",
    last: bool = True,
) -> tuple[Term, ...]:
    """Return the terms of one stage that holds these layers; only the last stage samples.

    `least_num_seqs` is the fewest sequences that the engine may have been started with, where its
    default is not certain.
    """
    if accelerator_kind == "cpu":
        return ()
    version = release(engine_version)
    terms = [
        _outside(split),
        _activations(model, split, layers, max_num_batched_tokens),
    ]
    if last:
        terms.append(_sampler(model, least_num_seqs or max_num_seqs, max_num_seqs, version))
    if any(layer.kv.kind == "mla" for layer in layers):
        terms.append(_latent(model, split, layers, max_num_batched_tokens))
    if version >= (0, 20, 0) and not eager:
        terms.append(_graphs(layers, split))
    return tuple(terms)


def unknown(model: Model, weights: int) -> tuple[Term, ...]:
    """Return what a rank may hold beyond the weights that are derived, of unknown architectures."""
    if not model.more:
        return ()
    most = model.more * weights
    return (Term("what is not known of this architecture", Band(0.0, most / 4, most)),)


def total(terms: Sequence[Term]) -> Band:
    """Return the sum of all terms."""
    return sum((term.band for term in terms), Band(0.0, 0.0, 0.0))


def _outside(split: Split) -> Term:
    """Contexts and libraries, and with more ranks the buffers of NCCL.

    A context and the workspaces of its libraries are some 0.3 GiB. A communicator of NCCL has up
    to 32 channels, each with a buffer of 4 MiB (`NCCL_BUFFSIZE`) in both directions, and an engine
    makes three or four: 0.9 GiB. The engine's first snapshot may be taken after they were made, so
    the low end has almost none; the high end has three times as much.
    """
    if split.tensor * split.pipeline * split.data == 1:
        return Term("outside of torch", Band(0.0, 0.3 * GIB, 0.9 * GIB))
    return Term("outside of torch, with NCCL", Band(0.1 * GIB, 0.9 * GIB, 2.7 * GIB))


def _activations(model: Model, split: Split, layers: Sequence[Layer], tokens: int) -> Term:
    """The largest step: hidden states and residuals, and the widest layer's intermediates.

    Four tensors of the hidden size live at once at least (hidden, residual, input and output of a
    projection); a gated block adds its two products and their activation. Experts see the tokens of
    all data-parallel ranks, gathered and sent back, and keep two workspaces for a chunk of them:
    for each chosen expert the larger of twice its intermediate and the hidden size, and the
    intermediate once more.
    """
    different = {id(layer.tensors): layer for layer in layers}.values()
    widest = max((_dense(layer, split) for layer in different), default=0.0)
    routed = max((_routed(layer, split) for layer in different), default=0.0)
    together = tokens * split.data if routed else tokens
    gathered = 2 * model.hidden * together if together > tokens else 0
    elements = tokens * (4 * model.hidden + widest)
    elements += min(together, EXPERT_CHUNK) * routed + gathered
    likely = 2.0 * elements
    return Term("activations", Band(likely / 2, likely, 2 * likely))


def _dense(layer: Layer, split: Split) -> float:
    """Return the elements for one token between the matrices of a dense or shared block."""
    inner = [
        tensor.units
        for tensor in layer.tensors
        if tensor.role in ("mlp", "shared_expert")
        and tensor.shard == "column"
        and tensor.name.endswith(".weight")
    ]
    return 3 * max(inner, default=0) / split.tensor


def _routed(layer: Layer, split: Split) -> float:
    """Return the elements of both workspaces for one token and its chosen experts."""
    ranks = 1 if split.expert else split.tensor * split.data
    units = [one.units for one in layer.tensors if one.name.endswith("experts.w13.weight")]
    inner = max(units, default=0) / ranks
    return layer.experts_per_token * (max(2 * inner, layer.hidden) + inner)


def _sampler(model: Model, fewest: int, sequences: int, version: Release) -> Term:
    """The dummy run of the sampler, over all sequences and the whole vocabulary.

    Before 0.18 top-p sorts: logits in 16 and in 32 bits (2 + 4), sorted (4), their indices in 64
    bits (8), probabilities and their sum (4 + 4), masks (1), the scattered result (4): 31 bytes
    for each. From 0.18 a kernel without sorting leaves logits and probabilities: 10.
    """
    least, logits = fewest * model.vocab, sequences * model.vocab
    low, mid, high = (12, 31, 36) if version < (0, 18, 0) else (8, 10, 31)
    return Term("sampler", Band(low * least, mid * logits, high * logits))


def _latent(model: Model, split: Split, layers: Sequence[Layer], tokens: int) -> Term:
    """Prefill of latent attention: keys and values of a chunk brought back to all heads.

    The chunk's workspace is at most 65536 latent entries in 16 bits; queries, keys and values of
    the batch and of the chunk are heads/TP x (192 + 192 + 128) at DeepSeek's sizes.
    """
    latent = next(layer.kv for layer in layers if layer.kv.kind == "mla")
    heads = max(1.0, model.heads / split.tensor)
    workspace = 65536 * latent.head_size * 2
    spread = 2 * heads * 512 * tokens
    indexed = 0.5 * GIB if latent.extra_bytes_per_token else 0.0
    mid = workspace + 2 * spread + indexed
    return Term("latent attention's prefill", Band(spread, mid, 2 * mid + indexed))


def _graphs(layers: Sequence[Layer], split: Split) -> Term:
    """The estimate of captured graphs, from 0.20 taken from the cache.

    Each of about 50 batch sizes, captured whole and in pieces, holds a node for each kernel: some
    ten a layer, 1 to 2 KiB each. To that come the pool's segments, and buffers that communicators
    register.
    """
    nodes = 50 * len(layers) * 10 * 1536 * 2
    pool = (0.6 if split.tensor > 1 else 0.4) * GIB
    return Term("captured graphs", Band(0.0, nodes + pool, 2 * (nodes + pool)))
