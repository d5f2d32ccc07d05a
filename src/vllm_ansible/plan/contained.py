"""The process of an engine as a container: the same command, with a narrow room around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_ansible.accelerators.platform import platform
from vllm_ansible.node.image.command import (
    Inside,
    cleanup_command,
    client_environment,
    run_command,
)
from vllm_ansible.node.launcher import KEEP_ENVIRON_READABLE, MARKER
from vllm_ansible.plan.environment import Room
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.process_spec import ProcessSpec
from vllm_ansible.problem import PlanError, Problem

# What ranks on one host exchange by shared memory: queues of the server, buffers of NCCL.
SHARED_GIB, SHARED_GIB_OF_A_DEVICE = 2, 1


def contained(room: Room, cluster: str, model: str, spec: ProcessSpec) -> ProcessSpec:
    """Return a process of an engine, to run in the image of its host.

    Paths stay what they are on the host, so the arguments of the engine do, too. The container has
    the weights and the engine's files to read, its caches and temporary files to write.
    """
    environment = dict(spec.environment)
    kind = platform(room.host["accelerator"])
    seen = environment.get(kind.visible_devices, "") if kind.renumbered else ""
    devices = [one for one in seen.split(",") if one]
    if devices:
        # The container is given these alone, and counts them anew.
        environment[kind.visible_devices] = ",".join(str(number) for number in range(len(devices)))
    user = str(room.host.get("service_user") or "")
    known = {"USER": user, "LOGNAME": user} if user else {}
    marks = dict.fromkeys((*KEEP_ENVIRON_READABLE, MARKER), "")
    count = len(room.engine.devices(str(room.host["name"])))
    name = f"vllm-{cluster}-{spec.name}"
    inside = Inside(
        name=name,
        program="vllm",
        environment={**marks, **known, **environment},
        readable=(model, room.engine_dir),
        writable=(f"{room.engine_dir}/cache", room.files_dir),
        accelerator=str(room.host["accelerator"]),
        accelerators=devices,
        shared_memory_gib=SHARED_GIB + SHARED_GIB_OF_A_DEVICE * count,
    )
    return replace(
        spec,
        argv=(*run_command(room.image, inside), *spec.argv[1:]),
        environment=client_environment(environment),
        # Who runs it is not who is in it: the tool may need root, the engine does not.
        user=None,
        cleanup=tuple(cleanup_command(room.image, name)),
    )


def refuse_ray(engine: PlannedEngine, rooms: Sequence[Room]) -> None:
    """Raise PlanError for an engine on Ray whose environment is an image."""
    if engine.ray_processes() and any(room.image for room in rooms):
        raise PlanError(no_ray(engine.name))


def no_ray(engine: str) -> Problem:
    """Return the refusal of Ray inside an image."""
    return Problem(
        f"engine {engine} is planned on Ray, which is not run inside images",
        expected="executor mp or dp where engine_source is image",
        found="executor ray",
        fix="set executor: mp (or a layout with data ranks) for this engine",
    )
