"""The tensors of one module: weight, scales, zero points, bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.model import Role, Shard, Tensor
from vllm_ansible.plan.estimate.architectures.quantization import Quantization, Scheme

SPLITS_OUTPUT = ("column", "kv", "vocab")


@frozen
class Cut:
    """How a linear layer is divided: by which rule, into how many units."""

    shard: Shard
    units: int


WHOLE = Cut("replicated", 1)


@frozen
class Parts:
    """Makes the tensors of one layer, in the schemes that the checkpoint has for its modules."""

    quantization: Quantization
    prefix: str

    @property
    def plain(self) -> Scheme:
        """The scheme of what is not quantized."""
        return self.quantization.plain

    def linear(
        self, module: str, inputs: int, outputs: int, cut: Cut, role: Role, *, bias: bool = False
    ) -> Iterator[Tensor]:
        """Yield a linear layer of outputs x inputs in the scheme its module is stored in."""
        scheme = self.quantization.scheme(self.prefix + module)
        yield from stored(module, inputs, outputs, cut, role, scheme)
        if bias:
            split = cut if cut.shard in SPLITS_OUTPUT else WHOLE
            yield self.vector(f"{module}.bias", outputs, role, split)

    def plain_linear(
        self, module: str, inputs: int, outputs: int, cut: Cut, role: Role, width: int = 0
    ) -> Tensor:
        """Return a linear layer that is never quantized; `width` is its bytes per element."""
        return self.vector(f"{module}.weight", inputs * outputs, role, cut, width)

    def vector(
        self, name: str, elements: int, role: Role = "norm", cut: Cut = WHOLE, width: int = 0
    ) -> Tensor:
        """Return a parameter of the model's own precision, or of `width` bytes per element."""
        size = width or self.plain.bits // 8
        return Tensor(name, elements, elements * size, cut.shard, role, cut.units)

    def experts(
        self, module: str, count: int, inputs: int, inner: int, *, gated: bool, padding: str = ""
    ) -> Iterator[Tensor]:
        """Yield experts of inputs to inner to inputs; gated ones have two first matrices.

        `padding` names kernels that pad both sides.
        """
        scheme = self.quantization.scheme(self.prefix + module, experts=True)
        cut = Cut("experts", inner)
        wide = inner * (2 if gated else 1)
        if not gated and scheme.name == "fp8 per tensor":
            padding = "fp8 ungated"
        for one, shape, axis in (("w13", (inputs, wide), "column"), ("w2", (inner, inputs), "row")):
            for made in stored(f"{module}.{one}", *shape, cut, "experts", scheme, count, axis):
                divided = made.units > 1 and padding
                yield replace(made, padding=padding, width=inputs) if divided else made


def stored(
    module: str,
    inputs: int,
    outputs: int,
    cut: Cut,
    role: Role,
    scheme: Scheme,
    experts: int = 0,
    axis: str = "",
) -> Iterator[Tensor]:
    """Yield weight, scales and zero points of one matrix, or of as many as there are experts."""
    many, axis = experts or 1, axis or cut.shard
    by_output = axis in SPLITS_OUTPUT
    weights = many * inputs * outputs

    def tensor(end: str, elements: int, size: float, units: int) -> Tensor:
        name = f"{module}.{end}"
        kept = elements * size
        shard = cut.shard if units > 1 or experts or cut.shard == "kv" else "replicated"
        return Tensor(name, elements, kept, shard, role, max(units, 1), experts)

    yield tensor("weight", weights, scheme.bits / 8, cut.units)
    if scheme.scales == "tensor":
        yield tensor("scales", 2 * many, scheme.scale_bytes, 1)
    elif scheme.scales == "channel":
        units = cut.units if by_output else 1
        yield tensor("scales", many * outputs, scheme.scale_bytes, units)
    elif scheme.scales == "block":
        rows, columns = ceil(outputs / scheme.size), ceil(inputs / scheme.size)
        units = _blocks(cut, rows if by_output else columns)
        yield tensor("scales", many * rows * columns, scheme.scale_bytes, units)
    elif scheme.scales == "group":
        groups = many * outputs * ceil(inputs / scheme.size)
        yield tensor("scales", groups, scheme.scale_bytes, cut.units)
        if scheme.zero_bits:
            yield tensor("zeros", groups, scheme.zero_bits / 8, cut.units)


def _blocks(cut: Cut, blocks: int) -> int:
    """Return what divides the scales: KV heads stay KV heads, else the blocks along the axis."""
    if cut.shard == "replicated":
        return 1
    return cut.units if cut.shard == "kv" else blocks
