"""NVIDIA's GPUs on a host, asked by the CUDA driver alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..cuda_driver import CudaError, Driver
from ..host_platform import HostPlatform


def devices(on_bus: list[str], driver: str) -> list[dict[str, Any]]:
    """Return name and memory of each device as the CUDA driver reports it, by ctypes.

    An empty list also means that the driver is absent or refuses: what PCI shows beside it tells.
    Containers often see devices and no bus.
    """
    del on_bus, driver
    try:
        opened = Driver()
        return [opened.name_and_memory(index) for index in range(opened.start())]
    except CudaError:
        return []


def container_options(tool: str, numbers: Sequence[str]) -> list[str]:
    """Return what hands devices to a container."""
    if tool == "podman":
        return [f"--device=nvidia.com/gpu={number}" for number in numbers or ["all"]]
    # Docker reads the value as a line of comma-separated fields.
    return [f'--gpus="device={",".join(numbers)}"' if numbers else "--gpus=all"]


PLATFORM = HostPlatform(
    name="nvidia",
    vendor="0x10de",
    version_file="/sys/module/nvidia/version",
    device_file=r"nvidia\d+",
    devices=devices,
    container_options=container_options,
    apptainer_option="--nv",
    container_tool="nvidia-ctk",
    iommu_matters=True,
    device_lists=("etc/cdi/nvidia.yaml", "var/run/cdi/nvidia.yaml"),
)
