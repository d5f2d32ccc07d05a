"""A model as the engine holds it: fused tensors, what each layer caches, and what was assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vllm_ansible.frozen import frozen

Shard = Literal["replicated", "column", "row", "kv", "experts", "vocab"]
Role = Literal[
    "attention",
    "mlp",
    "shared_expert",
    "experts",
    "router",
    "norm",
    "embedding",
    "head",
    "vision",
    "other",
]
KvKind = Literal["gqa", "mla", "sliding", "linear", "none"]


# These two are hashed for every layer, which the standard library's dataclass does faster.
@dataclass(frozen=True)
class Tensor:
    """One parameter of the engine, whole, before any rank takes its share.

    `bytes` is what the engine stores for all `elements`. `units` is what divides along the sharded
    axis: query heads, KV heads, intermediate size, vocabulary rows. A rank holds
    `bytes / units` for each unit it gets. Routed experts carry how many there are in `experts`, and
    `units` is then the intermediate size that tensor parallelism divides, `width` the other side
    where kernels pad it, and `padding` names the kernels that do (`memory/kernels.py`).
    """

    name: str
    elements: int
    bytes: float
    shard: Shard
    role: Role
    units: int = 1
    experts: int = 0
    padding: str = ""
    width: int = 0


@dataclass(frozen=True)
class Page:
    """A cache with pages of its own: tokens and bytes of one, and the window that is kept of it.

    A window of 0 is a ring, of which a sequence has one page whatever its length.
    """

    tokens: int
    bytes: int
    window: int | None = None


@dataclass(frozen=True)
class KvCache:
    """What one layer keeps for each token of a sequence, before sharding.

    `heads` are KV heads (one for `mla`, which is never sharded), `head_size` the elements of one
    head of keys, `value_size` of values (0 where values are not kept). `window` bounds the tokens
    kept by `sliding`. `state_bytes` is the state of a `linear` layer for one sequence, whatever
    its length. `extra_bytes_per_token` is kept beside and never sharded (a sparse indexer), one key
    for a `pool` of tokens.
    Where `tokens_per_state` exceeds one, that many tokens share one compressed entry. An entry of
    `entry_bytes` has a layout of its own, whatever the cache's precision. A layer of several caches
    lists them in `pages`, which then decide how many tokens fit; what it keeps `beside`, which may
    be a second cache of tokens or a state, shares the engine's pool of equal pages. `block` are the
    tokens of a page where it has its own; `checkpoints` the blocks that a sequence takes for a
    state inside its prompt, where such states are kept for prefixes.
    """

    kind: KvKind
    heads: int = 0
    head_size: int = 0
    value_size: int = 0
    window: int | None = None
    state_bytes: int = 0
    extra_bytes_per_token: float = 0
    tokens_per_state: int = 1
    entry_bytes: int = 0
    pages: tuple[Page, ...] = ()
    beside: KvCache | None = None
    block: int = 0
    checkpoints: int = 0
    pool: int = 1

    @property
    def stateful(self) -> bool:
        """Tell whether a sequence has a state here, alone or beside its keys."""
        return self.kind == "linear" or bool(self.beside and self.beside.stateful)


@frozen
class Layer:
    """One decoder layer; `experts` is 0 where the mlp is dense.

    `absorbed_before_0_8` are the latent-attention matrices that engines before 0.8 multiplied out
    at load and held besides. `sums` is how often tensor ranks add up what they have.
    """

    index: int
    tensors: tuple[Tensor, ...]
    kv: KvCache
    experts: int
    experts_per_token: int
    hidden: int
    absorbed_before_0_8: tuple[Tensor, ...] = ()
    sums: int = 2


@frozen
class Model:
    """A model: the first stage holds `embedding` and `others`, the last stage `head`.

    `others` is a vision tower, `head` the final norm and the output projection. Engine classes
    that build some of these on every stage name the roles in `everywhere`. `buffers` are on every
    stage and no parameters: rotary tables, index buffers. `block` is the side of a quantization
    block, None where scales are per tensor or channel. `kv_dtype` is the precision of the cache
    that the checkpoint declares, "auto" where it declares none. `assumed` says, one sentence each,
    what was taken for granted. `most_context` is the longest that the engine allows with scaled
    positions, 0 where the configuration does not say. `on_load` is the method by which the engine
    quantizes what the checkpoint stores unquantized, empty for none. `more` is the part of its
    weights that a rank may hold beyond what is derived, where the architecture is not known. Tensor
    parallelism must divide `tensor_divides` beside the heads (0: nothing), and a model that
    `whole` tells of has no pipeline stages. The checkpoint has `next_layers` that only propose
    tokens; `drafts` are those that are loaded, on the last stage, and `proposed` the tokens of a
    step that they propose. `own_head` is a head that the checkpoint of a tied model has besides and
    that newer engines hold (`memory/weights.py`).
    """

    name: str
    architecture: str
    layers: tuple[Layer, ...]
    embedding: tuple[Tensor, ...]
    head: tuple[Tensor, ...]
    others: tuple[Tensor, ...]
    tied: bool
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    max_context: int
    dtype: str
    quantization: str
    block: int | None = None
    kv_dtype: str = "auto"
    buffers: tuple[Tensor, ...] = ()
    everywhere: tuple[Role, ...] = ()
    assumed: tuple[str, ...] = ()
    most_context: int = 0
    on_load: str = ""
    more: float = 0.0
    tensor_divides: int = 0
    whole: bool = False
    next_layers: int = 0
    drafts: tuple[Layer, ...] = ()
    proposed: int = 0
    own_head: tuple[Tensor, ...] = ()
    # Of a draft model, the hidden size and the vocabulary of the target that it is made for.
    target: tuple[int, int] | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor, the layers' in order."""
        layers = (tensor for layer in self.layers for tensor in layer.tensors)
        return (*self.embedding, *layers, *self.head, *self.others)

    def bytes(self) -> float:
        """Return the bytes of all parameters of one undivided engine."""
        return sum(tensor.bytes for tensor in self.tensors())
