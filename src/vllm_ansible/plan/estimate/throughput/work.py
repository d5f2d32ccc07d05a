"""What one rank reads, multiplies and launches in each kind of layer, for one split of a model."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.decoder import INDEX_TOKENS
from vllm_ansible.plan.estimate.architectures.model import KvCache, Layer, Model, Tensor
from vllm_ansible.plan.estimate.memory.kernels import USUAL, Kernels, stretch
from vllm_ansible.plan.estimate.memory.kv_cache import growing, layer_bytes_per_token
from vllm_ansible.plan.estimate.memory.split import Split
from vllm_ansible.plan.estimate.throughput.constants import EXPERTS_KERNELS, SPARSE_HEADS


@frozen
class Launched:
    """What one layer launches: dense products, small kernels, calls of attention over a cache.

    `experts` are the kernels of the operation over experts.
    """

    products: int = 0
    small: int = 0
    attention: int = 0
    experts: int = 0


@frozen
class LayerWork:
    """One kind of layer on one rank.

    Bytes are read once a step, whatever the batch. `expert_bytes` is one routed expert's part on
    this rank, of `experts` there. `products` are multiply-adds for one token; `expert_products`
    for one token and one expert. `cache_bytes` is the cache of one token, `window` the most
    tokens of a sequence that are read (0: all), `state_bytes` what is read of each sequence
    whatever its length, and written back where it is a state that each token changes.
    `attention_products` are multiply-adds for one token and one token before it,
    `prefill_products` those of a prompt, in which latent attention brings keys and values back to
    their heads. Sparse attention sees at most `chosen` tokens (0: all), of each of which
    `chosen_bytes` of the cache are read; `index_products` choose them among all. `items` are the KV
    heads of grouped attention on this rank. `widened` tells of weights that meet activations of 16
    bits where the device has no products for them, `integers` that those of 4 bits are integers,
    which no device multiplies by activations of 16 bits. `mxfp4` tells of 4-bit experts that meet
    activations of 16 bits, `triton` that Triton's kernels multiply them, `cutlass` of FP8 ones
    without blocks of scales that CUTLASS's kernels multiply. `kernels` are all that a layer
    launches, `launched` the same by what they do. Engines before 0.8 decode with `absorbed` bytes
    of latent attention's matrices in place of the `raw` ones; the products of both stand beside.
    """

    dense_bytes: float
    products: float
    expert_bytes: float
    expert_products: float
    experts: float
    experts_all: int
    experts_per_token: int
    cache_bytes: float
    window: int
    state_bytes: float
    attention_products: float
    prefill_products: float
    head_size: int
    mxfp4: bool
    triton: bool
    cutlass: bool
    chosen: int
    chosen_bytes: float
    index_products: float
    kernels: int
    collectives: int
    dense_bits: int
    expert_bits: int
    items: float = 0.0
    widened: bool = False
    integers: bool = False
    sinks: bool = False
    launched: Launched = Launched()
    absorbed: float = 0.0
    absorbed_products: float = 0.0
    raw: float = 0.0
    raw_products: float = 0.0


# Elements of a head in prompts of a model with latent attention.
LATENT_HEAD = 128
# Rotated elements of a latent key, in models of the kind that rotate any.
ROTARY = 64
# A recurrent state is loaded and stored for each token (vLLM 0.17.1's and 0.32's
# `fused_recurrent.py`, `mamba_ssm.py`); of a cache of tokens only one entry is written.
STATE_PASSES = 2
# Matrices of latent attention that engines before 0.8 multiplied with each other for decoding.
MULTIPLIED = (".q_b_proj.", ".q_proj.", ".kv_b_proj.", ".kv_b_absorbed", ".o_proj.")
# Kinds of layers, and how many there are of each.
Parts = tuple[tuple[LayerWork, int], ...]


@frozen
class Work:
    """A model's layers by kind: how many of each kind every pipeline stage has, and the head."""

    kinds: tuple[LayerWork, ...]
    kind_of: tuple[int, ...]
    head_bytes: float
    head_products: float
    hidden: int
    vocabulary: int

    def stage(self, layers: range) -> Parts:
        """Return the kinds of a stage's layers and how many of each it has."""
        counts: dict[int, int] = {}
        for index in layers:
            counts[self.kind_of[index]] = counts.get(self.kind_of[index], 0) + 1
        return tuple((self.kinds[kind], count) for kind, count in counts.items())


class Kinds:
    """The distinct layers of a model, found once: models repeat one or two of them."""

    def __init__(self, model: Model, kernels: Kernels = USUAL, cached: str = "auto") -> None:
        self.model, self.kernels, self.cached = model, kernels, cached
        self.layers: list[Layer] = []
        self.kind_of: list[int] = []
        seen: dict[object, int] = {}
        for layer in model.layers:
            key = _signature(layer)
            if key not in seen:
                seen[key] = len(self.layers)
                self.layers.append(layer)
            self.kind_of.append(seen[key])

    def work(
        self, tensor: int, data: int, expert: bool, old_rope: bool, absorbed: bool = False
    ) -> Work:
        """Return the work of one rank when `tensor` x `data` ranks share a stage.

        old_rope: count the kernels of DeepSeek's rotary embedding as engines before 0.10 ran it.
        absorbed: decode by the matrices that engines before 0.8 multiplied out.
        """
        head = self.model.head or self.model.embedding
        split = Split(tensor)
        return Work(
            kinds=tuple(
                _layer_work(
                    self.model,
                    layer,
                    tensor,
                    data,
                    expert,
                    old_rope,
                    absorbed,
                    self.kernels,
                    _entry(layer.kv, split, self.cached),
                )
                for layer in self.layers
            ),
            kind_of=tuple(self.kind_of),
            head_bytes=sum(one.bytes * _share(one, tensor) for one in head),
            head_products=sum(one.elements * _share(one, tensor) for one in head),
            hidden=self.model.hidden,
            vocabulary=self.model.vocab,
        )


def _entry(kv: KvCache, split: Split, cached: str) -> float:
    """Return the bytes that a token leaves in a layer's caches, without its indexer's."""
    kept = sum(layer_bytes_per_token(one, split, cached) for one in growing(kv))
    return kept - kv.extra_bytes_per_token


def _signature(layer: Layer) -> object:
    """Return what makes two layers alike: the same tensors under other names."""
    shapes = tuple(
        (one.elements, one.bytes, one.shard, one.role, one.units) for one in layer.tensors
    )
    return shapes, layer.kv, layer.experts, layer.experts_per_token, layer.sums


def _share(one: Tensor, tensor: int) -> float:
    """Return the part of a tensor that one of `tensor` ranks holds."""
    if one.shard == "replicated" or tensor == 1:
        return 1.0
    return max(1.0, one.units / tensor) / one.units if one.units else 1.0 / tensor


def _layer_work(
    model: Model,
    layer: Layer,
    tensor: int,
    data: int,
    expert: bool,
    old_rope: bool,
    absorbed: bool,
    kernels: Kernels,
    per_token: float,
) -> LayerWork:
    """Return the work of one layer; `per_token` are the bytes that a token leaves in its cache."""
    dense = [one for one in layer.tensors if one.role != "experts"]
    routed = [one for one in layer.tensors if one.role == "experts"]
    ranks = tensor * data
    split = 1 if expert else ranks
    experts = layer.experts / min(ranks, max(1, layer.experts)) if expert else layer.experts
    each = max(1, layer.experts) * split
    kv = layer.kv
    mla = kv.kind == "mla"
    heads = 1 if mla else max(1, kv.heads // tensor) if kv.heads else 0
    chosen = _chosen(model) if mla else 0
    launched, count = _launched(model, layer, old_rope)
    out = layer.absorbed_before_0_8 if absorbed else ()
    raw = [one for one in dense if out and any(part in one.name for part in MULTIPLIED)]
    return LayerWork(
        dense_bytes=sum(one.bytes * _share(one, tensor) for one in dense),
        products=sum(one.elements * _share(one, tensor) for one in dense),
        expert_bytes=sum(one.bytes * stretch(one, split, kernels) for one in routed) / each,
        expert_products=sum(one.elements * stretch(one, split, kernels) for one in routed) / each,
        experts=experts,
        experts_all=layer.experts,
        experts_per_token=layer.experts_per_token,
        cache_bytes=(per_token * (not chosen) + kv.extra_bytes_per_token)
        if kv.kind != "linear"
        else 0,
        window=kv.window or 0,
        state_bytes=_state_bytes(kv) / tensor,
        attention_products=_attention(model, layer, tensor, chosen),
        prefill_products=_attention(model, layer, tensor, chosen)
        if chosen
        else _prefill_attention(model, layer, tensor),
        head_size=LATENT_HEAD if mla else kv.head_size,
        mxfp4=model.quantization.startswith("mxfp4"),
        triton=kernels.triton and model.quantization.startswith("mxfp4"),
        cutlass=kernels.cutlass and model.quantization.startswith("fp8") and not model.block,
        chosen=chosen,
        chosen_bytes=per_token if chosen else 0.0,
        index_products=_index_products(layer) if chosen else 0.0,
        kernels=count,
        launched=launched,
        collectives=layer.sums if tensor > 1 else 0,
        dense_bits=_bits(dense),
        expert_bits=_bits(routed),
        items=float(heads) if kv.kind in ("gqa", "sliding") else 0.0,
        widened=not model.quantization.startswith("int8"),
        integers=model.quantization.startswith("int4"),
        sinks=any(one.name.endswith(".sinks") for one in layer.tensors),
        absorbed=sum(one.bytes * _share(one, tensor) for one in out),
        absorbed_products=sum(one.elements * _share(one, tensor) for one in out),
        raw=sum(one.bytes * _share(one, tensor) for one in raw),
        raw_products=sum(one.elements * _share(one, tensor) for one in raw),
    )


def _state_bytes(kv: KvCache) -> float:
    """Return what is read of each sequence whatever its length; states are written back, too."""
    beside = kv.beside.state_bytes * STATE_PASSES if kv.beside else 0
    return beside + kv.state_bytes * (STATE_PASSES if kv.kind == "linear" else 1)


def _chosen(model: Model) -> int:
    """Return how many tokens sparse attention chooses, 0 where every token is seen."""
    for one in model.buffers:
        if one.name == "topk_indices":
            return int(one.elements) // INDEX_TOKENS
    return 0


def _index_products(layer: Layer) -> float:
    """Return the multiply-adds with which an indexer scores one token before another, or 0."""
    queries = [one for one in layer.tensors if one.name.endswith("indexer.wq_b.weight")]
    ranks = [one for one in layer.tensors if one.name.endswith("q_a_layernorm")]
    return queries[0].elements / ranks[0].elements if queries and ranks else 0.0


def _attention(model: Model, layer: Layer, tensor: int, chosen: int = 0) -> float:
    """Return the multiply-adds of scores and values for one token and one token before it."""
    heads = max(SPARSE_HEADS if chosen else 1.0, model.heads / tensor)
    if layer.kv.kind in ("linear", "none"):
        return 0.0
    values = layer.kv.value_size or (layer.kv.head_size - _rotary(layer) * bool(chosen))
    return heads * (layer.kv.head_size + values) * len(growing(layer.kv))


def _prefill_attention(model: Model, layer: Layer, tensor: int) -> float:
    """Return the same for prompts; the sizes of latent heads follow from their matrix."""
    if layer.kv.kind != "mla":
        return _attention(model, layer, tensor)
    spread = [one for one in layer.tensors if one.name.endswith("kv_b_proj.weight")]
    if not spread:
        return _attention(model, layer, tensor)
    rotary = _rotary(layer)
    latent = layer.kv.head_size - rotary
    each = spread[0].elements / model.heads / latent + rotary
    return max(1.0, model.heads / tensor) * each * len(growing(layer.kv))


def _rotary(layer: Layer) -> int:
    """Return the rotated elements of a latent key; GLM-5-Next rotates none."""
    ranks = [one for one in layer.tensors if one.name.endswith("kv_a_layernorm")]
    return layer.kv.head_size - int(ranks[0].elements) if ranks else ROTARY


def _bits(tensors: Iterable[Tensor]) -> int:
    """Return the bits of most weights: 16, 8 or 4."""
    kinds = {16: 0, 8: 0, 4: 0}
    for one in tensors:
        if one.elements and one.bytes / one.elements <= 2.1:
            width = 8 * one.bytes / one.elements
            kinds[16 if width > 12 else 8 if width > 6 else 4] += one.elements
    return max(kinds, key=lambda bits: kinds[bits])


def _launched(model: Model, layer: Layer, old_rope: bool) -> tuple[Launched, int]:
    """Return what a decoder layer launches, as vLLM's model code calls it, and in how many kernels.

    Grouped-query attention: norm, qkv, rotary, cache write, attention, output. MLA: three norms,
    five projections, five copies, two absorbed products, cache write, two of attention, rotary
    (18 elementwise operations on queries and key in engines before 0.10, then 2). Dense mlp: norm,
    gate and up, activation, down. Experts: norm, router, the choice, and the operation over experts
    of eight kernels; where scores are corrected, a cast, three more of the choice, and a scale
    (vLLM 0.32 chooses by softmax in one, `topk_softmax`); a shared expert adds three and a sum, its
    gate two.
    Recurrent layers: two projections and one out, norms, convolution, gates, recurrence, copies; of
    Mamba-2 one in and one out, two norms, convolution and recurrence (`mamba_mixer2.py`). Layers
    that only attend or only feed forward, as Nemotron-H's, launch nothing for the other.
    What a layer has beside that, a second latent attention or a recurrence, launches the same.
    Quantized activations add one for each product. An indexer: two projections, norm, rotary, two
    quantizing, scaling, cache write, scores, choice.
    """
    scaled = model.quantization.startswith(("fp8", "int8", "mxfp8", "nvfp4"))
    indexed = any(".indexer." in one.name for one in layer.tensors)
    # Products, small kernels and calls of attention, and the kernels of such a call.
    products, small, calls, each, quantized, experts = 0, 0, 0, 1, 0, 0
    for one in (layer.kv, layer.kv.beside):
        if one is None or (one is layer.kv.beside and one.kind == "sliding"):
            continue
        mamba = any(tensor.name.endswith(".D") for tensor in layer.tensors)
        more = {
            "mla": (7, 10 + (18 if old_rope else 2) - 1, 1, 2),
            "linear": (2, 4, 0, 0) if mamba else (3, 9, 0, 0),
            "none": (0, 0, 0, 0),
        }.get(one.kind, (2, 3, 1, 1))
        products, small, calls = products + more[0], small + more[1], calls + more[2]
        each = max(each, more[3])
        quantized += {"mla": 5, "linear": 2}.get(one.kind, more[0])
    blocks = sum(1 for one in layer.tensors if one.role == "mlp" and "down_proj.weight" in one.name)
    if layer.experts:
        corrected = any(one.name.endswith("e_score_correction_bias") for one in layer.tensors)
        shared = any(one.role == "shared_expert" for one in layer.tensors)
        gated = any(one.name.endswith("shared_expert_gate.weight") for one in layer.tensors)
        products += 1 + (2 if shared else 0) + (1 if gated else 0)
        small += 2 + (5 if corrected else 0) + (2 if shared else 0) + (1 if gated else 0)
        quantized += 2 + (2 if shared else 0)
        experts = EXPERTS_KERNELS
    blocks = blocks if layer.experts else int(any(one.role == "mlp" for one in layer.tensors))
    products, small = products + 2 * blocks, small + 2 * blocks
    quantized += 2 * blocks
    small += (quantized if scaled else 0) + (8 if indexed else 0)
    products += 2 if indexed else 0
    return Launched(products, small, calls, experts), products + small + calls * each + experts
