"""Feed-forward by its mechanism: one dense block, or a router over experts with a shared part.

Read from vLLM 0.32: `MergedColumnParallelLinear`, `FusedMoEFactory`, `GateLinear`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import Role, Tensor


@frozen
class Dense:
    """One feed-forward block; gated ones have two first matrices, held as one."""

    hidden: int
    inner: int
    gated: bool = True
    bias: bool = False
    module: str = "mlp"
    role: Role = "mlp"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield both matrices."""
        first = "gate_proj" if self.gated else "up_proj"
        wide = self.inner * (2 if self.gated else 1)
        column, row = Cut("column", self.inner), Cut("row", self.inner)
        yield from parts.linear(
            f"{self.module}.{first}", self.hidden, wide, column, self.role, bias=self.bias
        )
        yield from parts.linear(
            f"{self.module}.down_proj", self.inner, self.hidden, row, self.role, bias=self.bias
        )


@frozen
class Experts:
    """A router, routed experts, and a shared block that every token passes.

    `router_width` is the bytes of the router's weights (0: the model's own), `score_bias` a
    correction in fp32. `latent` is the size to which tokens are projected before the experts, with
    a norm behind them if `latent_norm`, and not quantized if `latent_plain`; `padding` the kernels
    that pad them. `nothing` are rows of the router that stand for no expert.
    """

    hidden: int
    inner: int
    count: int
    chosen: int
    shared: Dense | None = None
    shared_gate: bool = False
    gated: bool = True
    router_width: int = 0
    router_bias: bool = False
    score_bias: bool = False
    expert_bias: bool = False
    latent: int = 0
    latent_norm: bool = False
    latent_plain: bool = False
    padding: str = ""
    module: str = "mlp"
    nothing: int = 0

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield router, shared block and experts."""
        name, width = self.module, self.router_width
        gate, rows = f"{name}.gate", self.count + self.nothing
        yield parts.plain_linear(gate, self.hidden, rows, WHOLE, "router", width)
        if self.router_bias:
            yield parts.vector(f"{gate}.bias", rows, "router")
        if self.score_bias:
            yield parts.vector(f"{gate}.e_score_correction_bias", rows, "router", width=4)
        if self.shared is not None:
            yield from self.shared.tensors(parts)
            if self.shared_gate:
                yield parts.plain_linear(
                    f"{name}.shared_expert_gate", self.hidden, 1, WHOLE, "shared_expert"
                )
        if self.latent:
            for one, inputs, outputs in (
                ("fc1_latent_proj", self.hidden, self.latent),
                ("fc2_latent_proj", self.latent, self.hidden),
            ):
                if self.latent_plain:
                    yield parts.plain_linear(f"{name}.{one}", inputs, outputs, WHOLE, "router")
                else:
                    yield from parts.linear(f"{name}.{one}", inputs, outputs, WHOLE, "router")
            if self.latent_norm:
                yield parts.vector(f"{name}.latent_norm", self.latent)
        inputs = self.latent or self.hidden
        experts = f"{name}.experts"
        yield from parts.experts(
            experts, self.count, inputs, self.inner, gated=self.gated, padding=self.padding
        )
        if self.expert_bias:
            yield from self._biases(parts, experts, inputs)

    def _biases(self, parts: Parts, module: str, inputs: int) -> Iterator[Tensor]:
        wide, size = self.inner * (2 if self.gated else 1), parts.plain.bits // 8
        for name, elements, units, width in (
            ("w13_bias", self.count * wide, self.inner, 0),
            ("w2_bias", self.count * inputs, 1, inputs),
        ):
            yield Tensor(
                f"{module}.{name}",
                elements,
                elements * size,
                "experts",
                "experts",
                units,
                experts=self.count,
                padding=self.padding,
                width=width,
            )
