"""What a kind of accelerator is on a host; `accelerators/platform.py` is what it is to a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


def _no_options(tool: str, numbers: Sequence[str]) -> list[str]:
    del tool, numbers
    return []


@dataclass(frozen=True)
class HostPlatform:
    """A kind of accelerator on a host.

    `vendor` is the number of its maker on the PCI bus. `version_file` holds the driver's version,
    `device_file` is how the driver names a device's file in /dev. `devices` are those that answer:
    index, name and memory; it is given what the bus shows and the driver's version.

    Containers: `container_options` are what podman or docker is given for devices of these numbers,
    all without any; `in_containers` is how the names of files in /dev begin that it is given
    besides, `apptainer_option` what Apptainer is given. `container_tool` and `device_lists` are the
    program and the files below / that hand devices to containers.

    `iommu_matters` says that copies between devices depend on the mode of the IOMMU.
    """

    name: str
    vendor: str
    version_file: str
    device_file: str
    devices: Callable[[list[str], str], list[dict[str, Any]]]
    container_options: Callable[[str, Sequence[str]], list[str]] = _no_options
    in_containers: tuple[str, ...] = ()
    apptainer_option: str = ""
    container_tool: str = ""
    device_lists: tuple[str, ...] = ()
    iommu_matters: bool = False
