"""A container runtime that can hand accelerators to containers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.system.judged import Difference, File, Judged, Repair
from vllm_ansible.system.wants import Wants

SETTINGS = "/etc/docker/daemon.json"
DRIVER = "native.cgroupdriver"


def judge(look: Mapping[str, Any], want: Wants) -> Judged:
    """Compare runtime, toolkit, device list and Docker's settings with what containers need."""
    found = look["container_runtime"]
    engine = want.container_engine
    differences, packages = [], []
    commands: list[tuple[str, ...]] = []
    files: list[File] = []
    services: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if not found[engine]:
        package = "docker.io" if engine == "docker" and not want.red_hat else engine
        packages.append(package)
        differences.append(missing(f"the container runtime {engine}", f"install {package}"))
        services = ("docker",) if engine == "docker" else ()
    if runtime := platform(want.accelerator).runtime:
        if not found["toolkit"]:
            packages.append(runtime.package)
            differences.append(missing(runtime.what, runtime.fix))
        if not found["device_lists"]:
            commands.append(runtime.command)
            differences.append(
                missing(f"the list of devices {runtime.device_list}", " ".join(runtime.command))
            )
        if engine == "docker" and found["docker_control_groups"] != "cgroupfs":
            difference, file, note = control_groups(found)
            differences.append(difference)
            if file:
                files.append(file)
                commands.append(("systemctl", "restart", "docker"))
            notes = (note,) if note else ()
    repair = Repair(
        packages=tuple(packages), files=tuple(files), services=services, commands=tuple(commands)
    )
    return Judged(tuple(differences), notes, repair)


def missing(what: str, fix: str) -> Difference:
    """Return the difference of something that is not there."""
    return Difference(what=what, expected="there", found="not there", fix=fix)


def control_groups(found: Mapping[str, Any]) -> tuple[Difference, File | None, str]:
    """Return the difference of Docker's control groups, its mended settings, and a warning.

    With the systemd driver a `systemctl daemon-reload` takes the devices from running containers
    ("Failed to initialize NVML: Unknown Error", NVIDIA/nvidia-container-toolkit issue 48).
    """
    difference = Difference(
        what="Docker's driver of control groups",
        expected="cgroupfs",
        found=found["docker_control_groups"] or "unknown",
        fix=f'set "exec-opts": ["{DRIVER}=cgroupfs"] in {SETTINGS} and restart docker',
    )
    settings = found["docker_settings"]
    if settings is None:
        return difference, None, f"{SETTINGS} is not JSON and is left unchanged"
    if found["docker_running"]:
        running = f"{found['docker_running']} containers run; docker is not restarted under them"
        return difference, None, running
    others = [one for one in settings.get("exec-opts", []) if not one.startswith(DRIVER)]
    mended = {**settings, "exec-opts": [*others, f"{DRIVER}=cgroupfs"]}
    return difference, File(SETTINGS, json.dumps(mended, indent=2) + "\n"), ""
