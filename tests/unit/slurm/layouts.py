"""Inventories whose engines a script is to start, each in another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_ansible.slurm.wanted import Wanted, wanted

BASE: dict[str, Any] = {
    "provision_provider": "slurm",
    "cluster_name": "r1",
    "slurm_nodes": 1,
    "slurm_gpus_per_node": 4,
    "slurm_time": "1:00:00",
    "shared_dir": "/scratch/me/vllm",
    "site_setup": ["module load cuda"],
    "slurm_environment": "/scratch/me/venv",
    # What the inventory plugin says of slurm_gpus_per_node.
    "accelerator_count": 4,
}
# Configurations that data ranks depend on.
MODELS = Path(__file__).parent / "models"
ARGUMENTS = {
    "max_model_len": 4096,
    "hf_overrides": {"a": "it's $HOME", "b": '"`\\'},
    "enforce_eager": True,
}
ONE = {"layout": {"tensor": 1}}
CHAT = {"name": "chat", "model": "/models/chat", "vllm_args": ARGUMENTS}
# Name, nodes, engines and what else differs.
LAYOUTS: dict[str, tuple[int, list[dict[str, Any]], dict[str, Any]]] = {
    "tensor in one node": (1, [{**CHAT, "layout": {"tensor": 4}}], {}),
    "tensor by pipeline over nodes": (
        4,
        [{**CHAT, "layout": {"tensor": 4, "pipeline": 4}, "served_name": "the model's $name"}],
        {},
    ),
    "tensor over nodes": (2, [{**CHAT, "layout": {"tensor": 8}, "nodes": 2}], {}),
    "pipeline alone": (
        3,
        [{**CHAT, "layout": {"pipeline": 3}, "nodes": 3, "environment": {"NCCL_DEBUG": "a b"}}],
        {"slurm_gpus_per_node": 1, "accelerator_count": 1},
    ),
    "several engines in one job": (
        3,
        [
            {**CHAT, "layout": {"tensor": 2}},
            {**CHAT, "name": "two-nodes", "layout": {"tensor": 2, "pipeline": 3}, "nodes": 3},
            {"name": "small", "model": "org/name", "executor": "mp", "port": 9000, **ONE},
        ],
        {"port_base": 21000, "models_dir": "/scratch/models"},
    ),
    "one node without Ray": (1, [{**CHAT, "layout": {"tensor": 4}, "executor": "mp"}], {}),
    "nodes without Ray": (
        2,
        [{**CHAT, "layout": {"tensor": 4, "pipeline": 2}, "executor": "mp"}],
        {"slurm_environment": ["module load mamba", "mamba activate vllm"]},
    ),
    "data ranks that share experts": (
        2,
        [
            {
                **CHAT,
                "model": str(MODELS / "experts"),
                "layout": {"tensor": 2, "data": 4},
                "executor": "dp",
            }
        ],
        {},
    ),
    "data ranks of a dense model": (
        1,
        [
            {
                **CHAT,
                "model": str(MODELS / "dense"),
                "layout": {"tensor": 2, "data": 2},
                "executor": "dp",
            }
        ],
        {},
    ),
    "processors": (
        2,
        [{**CHAT, "nodes": 2, "layout": {"pipeline": 2}}],
        {"accelerator": "cpu", "accelerator_count": 1},
    ),
}


def inventory(nodes: int, **changes: Any) -> dict[str, dict[str, Any]]:
    """Return the variables of each host."""
    variables = {**BASE, "slurm_nodes": nodes, **changes}
    return {f"r1-{slot}": variables for slot in range(nodes)}


def layout(name: str) -> Wanted:
    nodes, engines, changes = LAYOUTS[name]
    return wanted(inventory(nodes, engines=engines, **changes))
