"""How the weight of each linear layer is stored: a scheme, and the modules it leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal

from vllm_ansible.frozen import frozen

Scales = Literal["none", "tensor", "channel", "block", "group"]
BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "auto": 2}
# What the engine holds as one module, and as what checkpoints name and store it.
FUSED: Mapping[str, tuple[str, ...]] = {
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")


@frozen
class Scheme:
    """Bits of a weight, and which scales lie beside it.

    `scale_bytes` is one scale; a `block` scale covers `size` x `size` weights, a `group` scale
    `size` weights along the input, with `zero_bits` for its zero point.
    """

    name: str
    bits: int
    scales: Scales = "none"
    scale_bytes: int = 4
    size: int = 0
    zero_bits: int = 0


@frozen
class Quantization:
    """The schemes of a checkpoint: of its linear layers, of its experts, and which are left out.

    `stored` names the modules that the checkpoint's index or headers show to be quantized; it
    decides where it is known, before any list of exceptions. `kv_dtype` is what is declared of
    the KV cache. `on_load` is the method by which the engine quantizes what is stored unquantized.
    """

    name: str
    linear: Scheme
    experts: Scheme
    plain: Scheme
    skipped: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    only: Mapping[str, Scheme] = field(default_factory=dict)
    stored: frozenset[str] | None = None
    kv_dtype: str = "auto"
    on_load: str = ""

    def scheme(self, module: str, experts: bool = False) -> Scheme:
        """Return how this module's weight is stored."""
        wanted = self.experts if experts else self.linear
        if wanted == self.plain:
            return wanted
        names = _named(short(module))
        if self.stored is not None:
            return self.plain if self.stored.isdisjoint(names) else wanted
        if self.only:
            return next((self.only[name] for name in names if name in self.only), self.plain)
        return self.plain if any(map(self._left_out, names)) else wanted

    def without(self, part: str) -> Quantization:
        """Return it for an engine that quantizes no module with `part` in its name."""
        only = {name: one for name, one in self.only.items() if part not in name.split(".")}
        stored = self.stored
        if stored is not None:
            stored = frozenset(name for name in stored if part not in name.split("."))
        return replace(self, skipped=self.skipped | {part}, only=only, stored=stored)

    def _left_out(self, name: str) -> bool:
        parts = name.split(".")
        ancestors = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        if any(ancestor in self.skipped for ancestor in ancestors):
            return True
        if any(part in self.skipped for part in parts):
            return True
        return any(pattern.match(name) for pattern in self.patterns)


def _named(name: str) -> tuple[str, ...]:
    """Return a module's name, and those of the parts from which the engine makes it."""
    start = name.rfind(".") + 1
    parts = FUSED.get(name[start:])
    return (name, *(name[:start] + part for part in parts)) if parts else (name,)


def short(module: str) -> str:
    """Return a module's name without what wraps the decoder, which differs from file to file."""
    for prefix in PREFIXES:
        if module.startswith(prefix):
            return module[len(prefix) :]
    return module


def stored_modules(names: Iterable[str]) -> frozenset[str] | None:
    """Return the modules that have scales beside their weight, and all that hold such modules.

    None where no tensor is a scale: then the checkpoint does not show it.
    """
    ends = ("weight_scale_inv", "weight_scale", "qweight", "weight_packed", "scales", "scale")
    found: set[str] = set()
    for name in names:
        module, _, end = name.rpartition(".")
        if end in ends:
            parts = short(module).split(".")
            found.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return frozenset(found) or None
