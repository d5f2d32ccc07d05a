"""One data-parallel rank as a process: its command, and what it alone has in its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ansible.accelerators.platform import RankOfData, platform
from vllm_ansible.plan.arguments import option, whole_number
from vllm_ansible.plan.dynamo import DYNAMO, rank_words, server_environment
from vllm_ansible.plan.environment import Room, node_environment
from vllm_ansible.plan.model_arguments import EXPERTS
from vllm_ansible.plan.planned_engine import PlannedEngine
from vllm_ansible.plan.servers import Server, pinned

Model = Mapping[str, Any]


def joined(model: Model) -> bool:
    """Tell whether the ranks step together: those of a mixture of experts share the experts.

    Ranks of a dense model have nothing in common, and vLLM refuses to be told of each other then.
    """
    return int(model.get("experts") or 0) > 0


def rank_arguments(room: Room, first: Mapping[str, Any], server: Server, model: Model) -> list[str]:
    """Return what makes one server a rank, beyond an engine of its own size.

    first: site_host of the host of the first rank.
    """
    engine = room.engine
    words = [
        "--tensor-parallel-size",
        str(engine.layout.tensor),
        # Ray is not needed within a host.
        "--distributed-executor-backend",
        "mp",
    ]
    if engine.front == DYNAMO:
        words += rank_words(room.files_dir, server.port, server.rank)
    if not joined(model):
        return words
    if not _pinned(room):
        words += [
            "--data-parallel-size",
            str(engine.layout.data),
            "--data-parallel-rank",
            str(server.rank),
            "--data-parallel-address",
            str(first["address"]),
            "--data-parallel-rpc-port",
            str(engine.ports.data_master),
        ]
    return [*words, *_expert_parallel(room)]


def _expert_parallel(room: Room) -> list[str]:
    """Return the flag that keeps experts whole, unless the user has decided or a CPU lacks it."""
    flags = {option(EXPERTS), option(f"no_{EXPERTS}")}
    if flags & set(room.engine.arguments) or not platform(room.host["accelerator"]).whole_experts:
        return []
    return [option(EXPERTS)]


def rank_environment(
    room: Room, first: Mapping[str, Any], server: Server, model: Model
) -> dict[str, str]:
    """Return the whole environment of one rank."""
    more = server_environment(room.engine.front)
    kind = platform(room.host["accelerator"])
    more |= kind.rank_variables(
        RankOfData(
            interface=str(room.host["interface"]),
            ranks=room.engine.layout.data,
            step_tokens=whole_number(room.engine.arguments, "max_num_batched_tokens") or 0,
            hidden_size=int(model.get("hidden_size") or 0),
            experts=joined(model),
        )
    )
    if joined(model) and _pinned(room):
        more |= {**_first_engine(room.engine, first, server), **kind.first_engine_variables}
    return {**node_environment(room, server.devices, more), "ENGINE_KEY_FILE": room.key_file}


def _pinned(room: Room) -> bool:
    return pinned(str(room.host["accelerator"]), room.engine_version)


def _first_engine(
    engine: PlannedEngine, first: Mapping[str, Any], server: Server
) -> dict[str, str]:
    """Return the variables by which the ranks of vLLM 0.9.2's first engine (V0) meet."""
    return {
        "VLLM_DP_MASTER_IP": str(first["address"]),
        "VLLM_DP_MASTER_PORT": str(engine.ports.data_master),
        "VLLM_DP_RANK": str(server.rank),
        "VLLM_DP_SIZE": str(engine.layout.data),
        "VLLM_USE_V1": "0",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
