"""A vLLM platform plugin: CPU ranks on several hosts, also under Ray."""


def register() -> str:
    """Name the platform class, as vLLM's entry point group `vllm.platform_plugins` asks."""
    return "vllm_cpu_ray.platform.CpuRayPlatform"
