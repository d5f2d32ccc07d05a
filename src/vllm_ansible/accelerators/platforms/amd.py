"""AMD's Instinct accelerators: the planner knows them, and nothing here runs them."""

from __future__ import annotations

from ..platform import Platform

PLATFORM = Platform(
    name="amd",
    title="AMD",
    software="rocm",
    serves=False,
    # Its library has the name of NVIDIA's.
    collectives="nccl",
    published=True,
    own_all_reduce=True,
    # On ROCm engines have printed all that was in use on the device: its total less what is free.
    prints_all_memory=True,
)
