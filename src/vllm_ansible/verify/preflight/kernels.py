"""Whether the kernels that an engine compiles at its first start can be compiled there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.verify.preflight.check import FAIL, PASS, WARN, Check, Cluster, Row, release

KERNELS = Check(
    "kernel_compiler",
    "what FlashInfer's kernels are compiled with",
    "vLLM's sampler compiles them at the first start, which ends without a compiler",
)
CHECKS = (KERNELS,)
# From its sources: 0.19.1 samples by FlashInfer only when asked to, 0.22.0 and later unless asked
# not to; releases between were not looked at.
SAMPLES_BY_FLASHINFER = (0, 22)
SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
PLACES = {
    "nvcc": "nvcc (CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda)",
    "ninja": "ninja (PATH)",
}


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all hosts."""
    return [_row(cluster, host) for host in cluster.hosts]


def _row(cluster: Cluster, host: str) -> Row:
    if not platform(cluster.kind(host)).compiles_at_start:
        return KERNELS.skipped(host, "no accelerators that FlashInfer has kernels for")
    seen = cluster.looks[host].get("kernels", {})
    installed = seen.get("installed", {})
    version = installed.get("flashinfer-python", "")
    if not installed:
        return KERNELS.skipped(host, "no environment of the engine is here, or it is an image's")
    if not version:
        return KERNELS.skipped(host, "FlashInfer is not in the engine's environment")
    wanted = f"nvcc and ninja, or flashinfer-cubin and flashinfer-jit-cache {version}"
    if precompiled(installed):
        return KERNELS.row(PASS, host, wanted, f"precompiled kernels of FlashInfer {version}")
    missing = {name: lacking(tools) for name, tools in seen["tools"].items() if lacking(tools)}
    if not missing:
        found = sorted({path for tools in seen["tools"].values() for path in tools.values()})
        return KERNELS.row(PASS, host, wanted, f"{', '.join(found)}: the first start compiles")
    told = "; ".join(f"{name} finds no {' and no '.join(lacks)}" for name, lacks in missing.items())
    verdict = FAIL if any(_ends(cluster, installed, name) for name in missing) else WARN
    return KERNELS.judged(verdict, host, wanted, told, _fix(cluster, version))


def precompiled(installed: Mapping[str, str]) -> bool:
    """Tell whether all kernels of the installed FlashInfer are there; `+cu130` is no other one."""
    parts = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
    return len({installed.get(name, "").partition("+")[0] for name in parts}) == 1


def lacking(tools: Mapping[str, str]) -> list[str]:
    """Return what an engine does not find, with where it looks."""
    return [words for name, words in PLACES.items() if not tools[name]]


def _ends(cluster: Cluster, installed: Mapping[str, str], name: str) -> bool:
    """Tell whether an engine that cannot compile ends at its start, rather than does without."""
    engines: dict[str, Mapping[str, Any]] = {str(one["name"]): one for one in cluster.engines}
    environment = engines.get(name, {}).get("environment") or {}
    if SAMPLER in environment:
        return str(environment[SAMPLER]) != "0"
    return release(installed.get("vllm", "").partition("+")[0]) >= SAMPLES_BY_FLASHINFER


def _fix(cluster: Cluster, version: str) -> str:
    toolkit = f"CUDA toolkit {cluster.cuda}" if cluster.cuda else "CUDA toolkit"
    return (
        f"install nvcc and the headers of the {toolkit} and name its directory in CUDA_HOME of the "
        "engine's environment; or lock the precompiled kernels "
        f"(environment_requirements with flashinfer-cubin and flashinfer-jit-cache {version}); or "
        f'set {SAMPLER}: "0" in the engine\'s environment, which spares its sampler alone'
    )
