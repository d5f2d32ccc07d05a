"""Layers that keep a state instead of keys: gated delta rule and state space.

What each one splits and keeps is read from vLLM 0.32: `QwenGatedDeltaNetAttention`, `MambaMixer2`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.parts import Cut, Parts
from vllm_ansible.plan.estimate.architectures.model import KvCache, Tensor


@frozen
class DeltaNet:
    """Gated delta-rule linear attention (Qwen3-Next, Qwen3.5): a state, and no keys kept."""

    hidden: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    kernel: int
    state_width: int
    module: str = "linear_attn"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, the convolution and the decay."""
        name = self.module
        keys, values = self.key_heads * self.key_size, self.value_heads * self.value_size
        by_value, by_key = Cut("column", self.value_heads), Cut("column", self.key_heads)
        yield from parts.linear(
            f"{name}.in_proj_qkvz", self.hidden, 2 * keys + 2 * values, by_key, "attention"
        )
        both = 2 * self.value_heads
        yield from parts.linear(f"{name}.in_proj_ba", self.hidden, both, by_value, "attention")
        wide = 2 * keys + values
        yield parts.plain_linear(f"{name}.conv1d", self.kernel, wide, by_key, "attention")
        yield parts.vector(f"{name}.dt_bias", self.value_heads, "attention", by_value)
        yield parts.vector(f"{name}.A_log", self.value_heads, "attention", by_value, 4)
        yield parts.vector(f"{name}.norm", self.value_size)
        row = Cut("row", self.value_heads)
        yield from parts.linear(f"{name}.out_proj", values, self.hidden, row, "attention")

    def cache(self) -> KvCache:
        """Return the state of one sequence: the convolution's tail and the matrix of each head."""
        wide = 2 * self.key_heads * self.key_size + self.value_heads * self.value_size
        tail = wide * (self.kernel - 1) * 2
        state = self.value_heads * self.value_size * self.key_size * self.state_width
        return KvCache("linear", self.value_heads, state_bytes=tail + state)


@frozen
class StateSpace:
    """A Mamba-2 mixer."""

    hidden: int
    heads: int
    head_size: int
    groups: int
    state: int
    kernel: int
    bias: bool
    conv_bias: bool
    state_width: int
    module: str = "mixer"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, the convolution and the decay."""
        name, inner = self.module, self.heads * self.head_size
        by_head, by_group = Cut("column", self.heads), Cut("column", self.groups)
        mixed = inner + 2 * self.groups * self.state
        wide = inner + mixed + self.heads
        yield from parts.linear(
            f"{name}.in_proj", self.hidden, wide, by_group, "attention", bias=self.bias
        )
        yield parts.plain_linear(f"{name}.conv1d", self.kernel, mixed, by_group, "attention")
        if self.conv_bias:
            yield parts.vector(f"{name}.conv1d.bias", mixed, "attention", by_group)
        yield parts.vector(f"{name}.A", self.heads, "attention", by_head, 4)
        yield parts.vector(f"{name}.D", self.heads, "attention", by_head)
        yield parts.vector(f"{name}.dt_bias", self.heads, "attention", by_head)
        yield parts.vector(f"{name}.norm", inner, "norm", by_head)
        yield from parts.linear(
            f"{name}.out_proj",
            inner,
            self.hidden,
            Cut("row", self.heads),
            "attention",
            bias=self.bias,
        )

    def cache(self) -> KvCache:
        """Return the state of one sequence."""
        mixed = self.heads * self.head_size + 2 * self.groups * self.state
        tail = mixed * (self.kernel - 1) * 2
        state = self.heads * self.head_size * self.state * self.state_width
        return KvCache("linear", self.heads, state_bytes=tail + state)
