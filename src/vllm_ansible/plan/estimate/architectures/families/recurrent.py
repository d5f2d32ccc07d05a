"""Layers that keep a state instead of keys: gated delta rule and state space.

What each one splits and keeps is read from vLLM 0.32: `QwenGatedDeltaNetAttention`, `MambaMixer2`,
`MambaMixer`, `KimiK3DeltaAttention`, `BailingMoELinearAttention`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.architectures.families.parts import WHOLE, Cut, Parts
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
    """A Mamba-2 mixer; where `normed` is false what comes out is gated alone.

    A rank has the groups that its heads need: a single group is whole on each.
    """

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
    normed: bool = True

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, the convolution and the decay."""
        name, inner = self.module, self.heads * self.head_size
        by_head, by_group = Cut("column", self.heads), Cut("column", self.groups)
        keys = 2 * self.groups * self.state
        # One matrix of the engine, in the parts that are divided apart.
        for wide, cut in ((2 * inner + self.heads, by_head), (keys, by_group)):
            yield from parts.linear(
                f"{name}.in_proj", self.hidden, wide, cut, "attention", bias=self.bias
            )
        for wide, cut in ((inner, by_head), (keys, by_group)):
            yield parts.plain_linear(f"{name}.conv1d", self.kernel, wide, cut, "attention")
            if self.conv_bias:
                yield parts.vector(f"{name}.conv1d.bias", wide, "attention", cut)
        yield parts.vector(f"{name}.A", self.heads, "attention", by_head, 4)
        yield parts.vector(f"{name}.D", self.heads, "attention", by_head)
        yield parts.vector(f"{name}.dt_bias", self.heads, "attention", by_head)
        if self.normed:
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
        return KvCache("linear", self.heads, state_bytes=tail + state, checkpoints=1)


@frozen
class KeyedDelta:
    """Kimi's delta attention: a decay for each key, by two small matrices; a gate on the output.

    `whole_gate` tells of a gate as wide as the values, else it is two small matrices, too, and
    `whole_decay` the same of the decay. The convolution is in fp32; Kimi-K3 holds it once more by
    its width, for decoding (`twice`). Of a `bounded` gate with heads of 128 FlashKDA, which takes
    the prompts on Hopper and later, exports a state inside the prompt.
    """

    hidden: int
    heads: int
    head_size: int
    kernel: int
    whole_gate: bool
    whole_decay: bool = False
    twice: bool = False
    bounded: bool = False
    module: str = "self_attn"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, the convolution and the decay."""
        name, size, by_head = self.module, self.head_size, Cut("column", self.heads)
        inner = self.heads * size
        wide = inner * (3 + self.whole_gate)
        yield from parts.linear(f"{name}.qkvg_proj", self.hidden, wide, by_head, "attention")
        if self.whole_decay:
            yield from parts.linear(f"{name}.f_proj", self.hidden, inner, by_head, "attention")
        small = (("f", self.whole_decay), ("g", self.whole_gate))
        for one in (one for one, whole in small if not whole):
            yield from parts.linear(f"{name}.{one}_a_proj", self.hidden, size, WHOLE, "attention")
            yield from parts.linear(f"{name}.{one}_b_proj", size, inner, by_head, "attention")
        yield from parts.linear(f"{name}.b_proj", self.hidden, self.heads, by_head, "attention")
        yield parts.plain_linear(f"{name}.conv1d", self.kernel, 3 * inner, by_head, "attention", 4)
        if self.twice:
            yield parts.plain_linear(
                f"{name}.conv1d_decode", self.kernel, 3 * inner, by_head, "attention", 4
            )
        yield parts.vector(f"{name}.dt_bias", inner, "attention", by_head, 4)
        yield parts.vector(f"{name}.A_log", self.heads, "attention", by_head, 4)
        yield parts.vector(f"{name}.o_norm", size)
        row = Cut("row", self.heads)
        yield from parts.linear(f"{name}.o_proj", inner, self.hidden, row, "attention")

    def cache(self) -> KvCache:
        """Return the state of one sequence, in fp32, and the convolution's tail."""
        inner = self.heads * self.head_size
        tail = 3 * inner * (self.kernel - 1) * 2
        state = inner * self.head_size * 4
        exported = int(self.bounded and self.head_size == 128)
        return KvCache("linear", self.heads, state_bytes=tail + state, checkpoints=exported)


@frozen
class Lightning:
    """Lightning attention (Ling 2.5): a matrix for each head, and a gate as wide as the values."""

    hidden: int
    heads: int
    head_size: int
    bias: bool
    output_bias: bool
    qk_norm: bool
    state_width: int
    module: str = "attention"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections and the norms."""
        name, inner, by_head = self.module, self.heads * self.head_size, Cut("column", self.heads)
        row = Cut("row", self.heads)
        yield from parts.linear(
            f"{name}.query_key_value", self.hidden, 3 * inner, by_head, "attention", bias=self.bias
        )
        if self.qk_norm:
            yield parts.vector(f"{name}.qk_norm", 2 * self.head_size)
        yield from parts.linear(f"{name}.g_proj", self.hidden, inner, by_head, "attention")
        yield parts.vector(f"{name}.g_norm", inner, "norm", by_head)
        yield from parts.linear(
            f"{name}.dense", inner, self.hidden, row, "attention", bias=self.output_bias
        )

    def cache(self) -> KvCache:
        """Return the state of one sequence, in the precision of the model's cache."""
        state = self.heads * self.head_size**2 * self.state_width
        return KvCache("linear", self.heads, state_bytes=state)


@frozen
class FirstStateSpace:
    """A Mamba-1 mixer, with norms of its own before the steps (Jamba)."""

    hidden: int
    inner: int
    state: int
    kernel: int
    step_rank: int
    bias: bool
    conv_bias: bool
    state_width: int
    module: str = "mamba"

    def tensors(self, parts: Parts) -> Iterator[Tensor]:
        """Yield the projections, the convolution, the norms and the decay."""
        name, by_inner = self.module, Cut("column", self.inner)
        row = Cut("row", self.inner)
        yield from parts.linear(
            f"{name}.in_proj", self.hidden, 2 * self.inner, by_inner, "attention", bias=self.bias
        )
        yield parts.plain_linear(f"{name}.conv1d", self.kernel, self.inner, by_inner, "attention")
        if self.conv_bias:
            yield parts.vector(f"{name}.conv1d.bias", self.inner, "attention", by_inner)
        steps = self.step_rank + 2 * self.state
        yield from parts.linear(f"{name}.x_proj", self.inner, steps, row, "attention")
        yield from parts.linear(
            f"{name}.dt_proj", self.step_rank, self.inner, by_inner, "attention", bias=True
        )
        yield parts.vector(f"{name}.A", self.inner * self.state, "attention", by_inner, 4)
        yield parts.vector(f"{name}.D", self.inner, "attention", by_inner)
        yield parts.vector(f"{name}.norms", steps)
        yield from parts.linear(
            f"{name}.out_proj", self.inner, self.hidden, row, "attention", bias=self.bias
        )

    def cache(self) -> KvCache:
        """Return the state of one sequence and the convolution's tail."""
        tail = self.inner * (self.kernel - 1) * 2
        state = self.inner * self.state * self.state_width
        return KvCache("linear", self.inner, state_bytes=tail + state)
