"""Links are measured with what engines run with: it is given once, in the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vllm_ansible.inventory.specs import load_options
from vllm_ansible.inventory.variables import unknown_variables
from vllm_ansible.verify.environment import of_engines

ROOT = Path(__file__).parents[3]
CHAT = {"name": "chat", "environment": {"NCCL_IB_HCA": "mlx5_1", "NCCL_IB_DISABLE": True}}
CODE = {"name": "code", "hosts": ["n2"], "environment": {"NCCL_IB_HCA": "mlx5_2", "UCX_TLS": "rc"}}


def test_ranks_have_the_environment_of_the_engines_of_their_host() -> None:
    chat = {"NCCL_IB_HCA": "mlx5_1", "NCCL_IB_DISABLE": "1"}
    assert of_engines([CHAT, CODE], "n1") == chat
    assert of_engines([CHAT, CODE], "n2") == {**chat, "UCX_TLS": "rc"}
    assert of_engines([CODE, {"name": "bare"}], "n1") == {}


def test_what_the_measurement_itself_needs_stays() -> None:
    ours = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/x"}
    assert of_engines([{"name": "chat", "environment": ours}], "n1") == {}


def test_ranks_start_with_it(play: Any) -> None:
    """The role's own line, in a real play: what engines say wins over the usual, ours stays."""
    tasks = (ROOT / "roles/collectives/tasks/measure.yml").read_text()
    line = tasks.split("    environment: >-\n")[1].split("    # Who starts")[0]
    shown = {"name": "shown", "ansible.builtin.debug": {"msg": " ".join(line.split())}}
    host = {
        "collectives_rank_environment": {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "RING", "A": "1"},
        "site_host": {
            "site_environment": {"A": "2", "B": "2"},
            "fabric_environment": {"NCCL_NET": "AWS Libfabric", "LD_LIBRARY_PATH": "/efa"},
        },
        "engines": [{**CHAT, "environment": {"B": "3", "NCCL_DEBUG": "WARN"}}],
    }
    found = play([shown], {"n1": host})["shown"]["msg"]
    found = found if isinstance(found, dict) else json.loads(found.replace("'", '"'))
    fabric = {"NCCL_NET": "AWS Libfabric", "LD_LIBRARY_PATH": "/efa"}
    assert found == {"NCCL_DEBUG": "INFO", "NCCL_ALGO": "RING", "A": "2", "B": "3", **fabric}


def test_the_old_name_says_where_its_values_belong() -> None:
    given = {"n1": {"collectives_environment": {"NCCL_IB_HCA": "mlx5_1"}}}
    options = load_options(ROOT / "roles")
    (problem,) = unknown_variables(given, options, (), lambda name, hosts: "group_vars/all.yml")
    assert "links are measured with what engines run with" in problem.message
    assert "`environment` of each engine" in problem.expected
    assert "under `environment` of the engines" in problem.fix
