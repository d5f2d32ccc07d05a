"""`playbooks/teardown.yml` leaves no key on the host of the group `load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.flows.clone import Clone


@pytest.mark.parametrize(
    "asked", ["whole", *(pytest.param(one, marks=pytest.mark.soak) for one in ("check", "alone"))]
)
def test_teardown_removes_the_key_from_the_host_of_the_load(tmp_path: Path, asked: str) -> None:
    clone, loader = Clone(tmp_path / "clone"), tmp_path / "loader"
    kept = ("environments/e1/bin/vllm", "tools/bin/python")
    gone = ("secrets/benchmark_key", "load/door.crt", "load/written/ramp.json", "evidence/x.json")
    for name in (*kept, *gone, "tasks/ramp-chat.log", "logs/x.log"):
        (loader / name).parent.mkdir(parents=True, exist_ok=True)
        (loader / name).write_text("of-a-client\n")
    here = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    variables: dict[str, Any] = {
        "cluster_name": "ldt",
        "cluster_dir": str(tmp_path / "cluster"),
        "accelerator": "cpu",
        "accelerator_count": 1,
        "privileges": "none",
        "engines": [{"name": "chat", "model": "package:smollm2-135m-instruct"}],
    }
    inventory = clone.inventory("ldt", {"here": here}, **variables)
    hosts = inventory / "hosts.yml"
    content = yaml.safe_load(hosts.read_text())
    content["all"]["children"]["load"] = {"hosts": {"loader": {**here, "cluster_dir": str(loader)}}}
    hosts.write_text(yaml.safe_dump(content))

    playbook = "playbooks/teardown.yml"
    if asked == "check":
        ran = clone.run(inventory, "--check", playbook=playbook)
        assert ran.status == 0, ran.output
        assert all((loader / name).exists() for name in (*kept, *gone))
        return
    if asked == "whole":
        ran = clone.run(inventory, "--limit", "here", playbook=playbook)
        assert ran.status == 0, ran.output
        assert all((loader / name).exists() for name in gone)
        said = " ".join(ran.output.split())
        assert "--limit leaves out loader of the group load, which keeps the key" in said
    alone = ["--limit", "loader"] if asked == "alone" else []
    ran = clone.run(inventory, *alone, playbook=playbook)
    assert ran.status == 0, ran.output
    assert [name for name in gone if (loader / name).exists()] == []
    assert all((loader / name).exists() for name in kept)
    assert "--limit leaves out" not in ran.output
    summaries = [one["summary"] for one in ran.evidence("teardown")]
    assert any(summary.startswith("loader: 0 processes ended") for summary in summaries)
