"""What is said before engines load; a real play on two hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
GB = 10**9
STORAGE = {
    "kind": "nfs4",
    "network": True,
    "point": "/srv",
    "place": "/srv/r1",
    "memory_available": 900 * GB,
    "local_free": 0,
    "local_kind": "ext4",
    "read_ahead_kib": 128,
}
LOOK = {
    "storage": STORAGE,
    "contents": {"bytes": 640 * GB, "layers": {}, "others": 0, "count": 0},
    "cached": 0.0,
    "way": "ahead",
    "rate": {"bytes_per_second": 2 * GB},
    "why": "",
}
ENGINES = [
    {
        "name": name,
        "layout": {"tensor": 2, "pipeline": 1, "data": 1},
        "hosts": ["n1", "n2"],
        "ranks": [{"rank": rank, "host": f"n{rank + 1}", "device": 0} for rank in (0, 1)],
        "arguments": [],
        "environment": {},
    }
    for name in ("r1", "serves")
]


def test_of_engines_that_start_it_is_said_how_long_they_load(play: Any) -> None:
    forecast = {"engines": ENGINES, "looks": "looks", "version": "0.32.0"}
    hosts = {
        "n1": {"looks": {"engines": {"r1": LOOK}}, "others": {"engines": {}}},
        "n2": {"looks": {"engines": {"r1": {**LOOK, "cached": 0.5}}}, "others": {"engines": {}}},
    }
    played = play(
        [
            {"name": "said", "loading_forecast": forecast, "run_once": True},
            {
                "name": "nothing starts",
                "loading_forecast": {**forecast, "looks": "others"},
                "run_once": True,
            },
            {
                "name": "nobody looked",
                "loading_forecast": {**forecast, "looks": "missing"},
                "run_once": True,
            },
        ],
        hosts,
    )
    said = played["said"]
    assert not said["changed"]
    assert said["evidence"]["gate"] == "loading"
    assert said["evidence"]["summary"] == (
        "r1: the slowest of 2 hosts, n1, reads at most 640.0 GB from nfs4 at 2.0 GB/s as "
        "measured, so loading takes about 5 m 20 s"
    )
    assert said["engines"].keys() == {"r1"}
    assert said["engines"]["r1"]["hosts"]["n2"]["seconds"] == 160
    nothing = played["nothing starts"]
    assert nothing["engines"] == {} and "evidence" not in nothing
    assert played["nobody looked"]["failed"]


ELSEWHERE = (
    "{{ __vllm_loading.engines | default({}) | loading_elsewhere('r1', inventory_hostname) }}"
)
MODEL_PATH = "{{ weights_models['other'].path | default('') }}"


def test_the_role_looks_at_what_starts_and_says_how_long_it_loads(
    play: Any, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/pytorch_model.bin").write_bytes(os.urandom(1 << 20))
    models = {"r1": {"path": str(tmp_path / "model"), "fingerprint": "f"}}
    defaults = yaml.safe_load((ROOT / "roles/vllm/defaults/main.yml").read_text())
    hosts = {
        name: {
            **defaults,
            "site_host": {"cluster_dir": str(tmp_path / name)},
            "site_plan": {"engines": ENGINES},
            "weights_models": models if name == "n1" else {},
            "environment_installed": {"versions": {"vllm": "0.32.0"}},
            "plan_decision": {"engines": {"r1": {"action": "start"}}},
        }
        for name in ("n1", "n2")
    }
    tasks = ROOT / "roles/vllm/tasks/loading.yml"
    said = {"msg": {"elsewhere": ELSEWHERE, "model_path": MODEL_PATH}}
    played = play(
        [
            {"name": "before", "ansible.builtin.debug": said},
            {"name": "look", "ansible.builtin.include_tasks": str(tasks)},
            {"name": "after", "ansible.builtin.debug": said},
        ],
        hosts,
    )
    # Before anything was looked at nothing is waited for, nor of a model that is not there.
    before = played.tasks["before"]["n1"]["msg"]
    assert (float(before["elsewhere"]), before["model_path"]) == (0, "")
    looked = played.tasks["Look at where the weights lie, and how fast they are read"]
    assert looked["n1"]["engines"]["r1"]["contents"]["bytes"] == 1 << 20
    assert looked["n2"]["engines"] == {}
    (found,) = played.tasks["Say how long the weights will take to load"].values()
    # What was just written is in memory; of the other host nothing is known.
    assert found["engines"]["r1"]["hosts"]["n1"]["way"] == "mapped"
    assert found["engines"]["r1"]["hosts"]["n2"]["seconds"] is None
    assert float(played.tasks["after"]["n2"]["msg"]["elsewhere"]) < 60
