"""The README's inventory of two hosts of H100, weights in a path: validate, then the plan's tasks.

The weights are sparse files with the headers of a published model, the devices those that a look at
such hosts finds; all else is played as `site.yml` plays it, up to where an engine would be needed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm

from .test_plugins import look

ROOT = Path(__file__).parents[3]
CONFIGS = ROOT / "tests/data/public/configs"
LLAMA_70B = "meta-llama--Meta-Llama-3.1-70B_config.json"
SHARD = 5 * 10**9


@dataclass(frozen=True)
class Ran:
    """What a run said: its status, the result of each task by name, of the first host."""

    status: int
    results: Mapping[str, Mapping[str, Any]]

    def summary(self, task: str) -> str:
        return str(self.results[task]["evidence"]["summary"])


def readme() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the README's inventory of own hosts: hosts.yml, and group_vars/all.yml."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n# inventories/mine/hosts\.yml\n(.*?)```", text, re.DOTALL)
    hosts, variables = block.split("# inventories/mine/group_vars/all.yml\n")
    return yaml.safe_load(hosts), yaml.safe_load(variables)


def weights(place: Path, config: str) -> None:
    """Write a published configuration, and sparse shards whose headers sum to its tensors."""
    values = json.loads((CONFIGS / config).read_text(encoding="utf-8"))
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(values), encoding="utf-8")
    hidden, inner = values["hidden_size"], values["intermediate_size"]
    size = values.get("head_dim") or hidden // values["num_attention_heads"]
    queries, keys = (size * values[f"num_{name}_heads"] for name in ("attention", "key_value"))
    shapes = {
        "model.embed_tokens.weight": [values["vocab_size"], hidden],
        "model.norm.weight": [hidden],
        "lm_head.weight": [values["vocab_size"], hidden],
    }
    for layer in range(values["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": [hidden],
            "post_attention_layernorm": [hidden],
            "self_attn.q_proj": [queries, hidden],
            "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden],
            "self_attn.o_proj": [hidden, queries],
            "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden],
            "mlp.down_proj": [hidden, inner],
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    number, held = count(1), {}
    end = 0
    for name, shape in shapes.items():
        length = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if held and end + length > SHARD:
            shard(place / f"model-{next(number):05}.safetensors", held, end)
            held, end = {}, 0
        held[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + length]}
        end += length
    shard(place / f"model-{next(number):05}.safetensors", held, end)


def shard(path: Path, tensors: Mapping[str, Any], length: int) -> None:
    """Write a header, and no more of what it describes than its length."""
    header = json.dumps(tensors).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + length)


def run(directory: Path, **engine: Any) -> Ran:
    """Check the inventory, look for what cannot run, and plan; nothing else is touched."""
    inventory, variables = readme()
    # Here they are reached without SSH, and have what H100s answer.
    devices = [
        {"index": one, "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 81559 << 20}
        for one in range(8)
    ]
    found = {"kind": "nvidia", "count": 8, "pci": ["a"] * 8, "driver_version": "580.1"}
    inventory["all"]["vars"] |= {
        "ansible_connection": "local",
        "ansible_python_interpreter": warm.python(),
    }
    inventory["all"]["vars"].pop("ansible_user")
    for place, one in enumerate(inventory["all"]["children"]["gpu"]["hosts"].values(), 1):
        one["__site_look"] = look(place, {**found, "devices": devices})
    (written,) = variables["engines"]
    engine = {name: value for name, value in {**written, **engine}.items() if value is not None}
    variables |= {"engines": [engine]}
    (directory / "group_vars").mkdir()
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (directory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
    facts = "{{ facts.hosts[inventory_hostname] }}"
    tasks: list[dict[str, Any]] = [
        {"site_facts": {"looks": "__site_look"}, "register": "facts", "run_once": True},
        {"set_fact": {"site_host": facts, "site_hosts": "{{ facts.hosts.values() | list }}"}},
        {"include_role": {"name": "plan", "tasks_from": "early"}},
        {
            "name": "Compute the layout",
            "plan_layout": {
                "cluster": "{{ cluster_name }}",
                "engines": "{{ engines }}",
                "hosts": "{{ site_hosts }}",
                "configs": "__plan_configs",
            },
            "run_once": True,
        },
    ]
    play = {"hosts": "gpu", "gather_facts": False, "any_errors_fatal": True, "tasks": tasks}
    # What defaults of roles give the stages.
    play["vars"] = {"port_base": 20000, "accelerators": {}}
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    done = warm.play(
        ["-i", directory / "hosts.yml", "playbooks/validate.yml", directory / "play.yml"],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
            "XDG_CACHE_HOME": str(directory),
            "HF_ENDPOINT": "http://127.0.0.1:9",
        },
    )
    told = list(documents(done.stdout))
    assert told, done.stdout + done.stderr
    results = {
        task["task"]["name"]: next(iter(task["hosts"].values()))
        for book in told
        for one in book["plays"]
        for task in one["tasks"]
        if task["hosts"]
    }
    return Ran(done.returncode, results)


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield what each playbook said."""
    decoder, place = json.JSONDecoder(), max(0, text.find("{"))
    while text.startswith("{", place):
        found, place = decoder.raw_decode(text, place)
        yield found
        place = text.find("\n{", place) + 1 or len(text)


FP8 = {"quantization": "fp8", "max_model_len": 4096}
CHECK = "Check every variable of every host"
PLAN = "Compute the layout"


@pytest.mark.parametrize(
    ("engine", "layout", "expected"),
    [
        # As the README has it.
        ({}, "TP1 PP2 on gpu1, gpu2 (ray, port 8000)", "14 of 16 accelerators stay idle"),
        (
            {"layout": "auto", "nodes": None, "vllm_args": {}},
            "DP2 TP8 on gpu1, gpu2 (dp, ports 20020 to 20021)",
            "chat: 2 x TP8: layout auto; 16.",
        ),
        (
            {"layout": {"tensor": 1}, "nodes": None, "vllm_args": FP8},
            "TP1 PP1 on gpu1 (ray, port 8000)",
            "(estimated as fp8 holds them on load)",
        ),
    ],
)
def test_two_hosts_end_in_the_planned_layout(
    tmp_path: Path, engine: dict[str, Any], layout: str, expected: str
) -> None:
    weights(tmp_path / "data/llama", LLAMA_70B)
    ran = run(tmp_path, model=str(tmp_path / "data/llama"), **engine)
    assert ran.status == 0, ran.results
    assert expected in ran.summary(CHECK)
    assert ran.summary(PLAN) == f"chat: {layout}"
    # What was read on the controller is what the hosts have.
    idle = ran.results[PLAN]["evidence"]["values"]["idle_devices"]
    assert ("idle" in ran.summary(CHECK)) == bool(idle)


def test_two_hosts_end_in_one_clear_refusal(tmp_path: Path) -> None:
    weights(tmp_path / "data/llama", LLAMA_70B)
    ran = run(tmp_path, model=str(tmp_path / "data/llama"), layout={"tensor": 1}, nodes=None)
    assert ran.status != 0
    assert list(ran.results) == [CHECK], "nothing else was played"
    refusal = ran.results[CHECK]
    assert (
        "chat with layout TP1 PP1 cannot run on 2x8 H100-80: the weights alone are 131.4"
        in (refusal["msg"])
    )
    assert refusal["fix"].startswith("write layout: ")


def test_weights_that_the_controller_has_not_are_read_where_they_are(tmp_path: Path) -> None:
    """What nobody could check is said, and refused where the hosts have not it either."""
    ran = run(tmp_path, model="/data/nowhere", layout="auto", nodes=None)
    assert ran.status != 0
    assert "fit of chat not checked: its config.json cannot be read" in ran.summary(CHECK)
    last = list(ran.results.values())[-1]
    assert "has layout: auto, and nothing can be planned" in last["msg"]
