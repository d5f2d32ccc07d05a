"""The CPU platform of vLLM, with Ray and with more than one host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.platforms.cpu import CpuPlatform

if TYPE_CHECKING:
    from vllm.config import VllmConfig


class CpuRayPlatform(CpuPlatform):
    """vLLM's own CPU platform with five gaps closed; README.md says where upstream has them."""

    # To Ray "GPU" is a resource that is counted, whatever it stands for: here, one rank.
    ray_device_key = "GPU"

    # Upstream compiles small functions with a C++ compiler at the first request that needs them;
    # on a host without one, a request for log probabilities ends the whole engine.
    simple_compile_backend = "eager"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """Name the communicator that looks at hosts before it takes shared memory."""
        return "vllm_cpu_ray.communicator.HostAwareCpuCommunicator"

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Choose our worker where the user chose none, then let upstream do its part."""
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "vllm_cpu_ray.worker.PipelineCpuWorker"
        super().check_and_update_config(vllm_config)
