"""A real engine of this machine that hangs unless it is eager: its third start serves, and so on.

It hangs by a `sitecustomize` of its environment, as long as a file is there: each start of vLLM
without --enforce-eager stands still before its first line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, Ran, wait_until
from .conftest import CHAT, Site, read_json
from .greedy import ASK
from .processes import end_all, of_cluster

pytestmark = [pytest.mark.engine, pytest.mark.soak]
MODEL = str(CHAT["model"]).partition(":")[2]
HANGS = """
import os, sys, time
starts = sys.argv[1:2] == ["serve"] and "--enforce-eager" not in sys.argv
if starts and os.path.exists({trigger!r}):
    while True:
        time.sleep(60)
"""


class Hanging(Site):
    """One engine of one process, whose planned start may be made to hang."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, f"ladder{os.getpid()}")
        self.trigger = directory / "hang"
        plugin = directory / "plugin"
        plugin.mkdir(parents=True, exist_ok=True)
        (plugin / "sitecustomize.py").write_text(HANGS.format(trigger=str(self.trigger)))
        arguments: dict[str, Any] = CHAT["vllm_args"]  # type: ignore[assignment]
        engine = {
            **{**CHAT, "executor": "mp", "port": 8270, "environment": {"PYTHONPATH": str(plugin)}},
            # Not eager, and yet no compiler: that takes minutes here, and proves nothing more.
            "vllm_args": {**arguments, "compilation_config": {"mode": 0}},
        }
        self.variables |= {
            **{"engines": [engine], "accelerator_count": 1, "port_base": 27000},
            **{"watchdog_restart": "auto", "watchdog_restarts": 9},
            **{"watchdog_silence_seconds": 45, "watchdog_start_seconds": 900},
        }
        self.inventory = self.clone.inventory("flow", self.hosts, **self.variables)

    def goes(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        # An engine that starts otherwise is measured again: no part of what is looked at here.
        skipped = ("--skip-tags", "verify,benchmark") if playbook == "site.yml" else ()
        ran = self.start(*arguments, *skipped, playbook=playbook).result(40 * MINUTE)
        assert ran.status == 0, ran.output
        return ran

    @property
    def words(self) -> list[str]:
        return list(read_json(self.cluster_dir / "processes/chat-serve.json")["argv"])

    def restarts(self) -> list[dict[str, Any]]:
        path = self.cluster_dir / "watchdog/restarts/state.json"
        kept = read_json(path)["engines"] if path.exists() else {}
        return list(kept.get("chat", {}).get("restarts", []))

    def findings(self) -> list[str]:
        path = self.run_dir / "watchdog/state.json"
        return [one["kind"] for one in read_json(path)["findings"]] if path.exists() else []

    def kill(self) -> None:
        pid = int(self.process("chat-serve")["process"]["pid"])
        os.kill(pid, signal.SIGKILL)

    def answer(self) -> str:
        asked = subprocess.run(
            [sys.executable, "-c", ASK, "http://127.0.0.1:8270", self.state / "api_key", MODEL],
            capture_output=True,
            text=True,
            check=True,
        )
        return str(json.loads(asked.stdout)["text"])


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hanging]:
    made = Hanging(tmp_path_factory.mktemp("hanging"))
    made.goes()
    yield made
    end_all(made.cluster_dir)
    shutil.rmtree(made.cluster_dir, ignore_errors=True)
    shutil.rmtree(made.run_dir, ignore_errors=True)


def test_the_third_start_serves(hanging: Hanging) -> None:
    assert "--enforce-eager" not in hanging.words
    hanging.trigger.touch()
    began = time.time()
    hanging.kill()

    def helped() -> list[dict[str, Any]]:
        return [one for one in hanging.restarts() if one.get("helped")]

    wait_until(helped, 40 * MINUTE, "a start that serves")
    starts = [(one["rung"], one.get("kind"), one["outcome"]) for one in hanging.restarts()]
    print(f"serves after {time.time() - began:.0f} s: {json.dumps(hanging.restarts(), indent=1)}")
    assert [rung for rung, *_ in starts] == ["again", "graphs", "eager"], starts
    assert hanging.words[-1] == "--enforce-eager"
    assert "Paris" in hanging.answer()


def test_a_run_changes_nothing_and_status_says_what_helped_and_what_it_costs(
    hanging: Hanging,
) -> None:
    assert hanging.goes().changed == []
    said = " ".join(hanging.goes(playbook="playbooks/status.yml").output.split())
    assert "ladder: chat: starts with --enforce-eager since" in said and "cost:" in said
    assert "restarts: chat: helped: " in said


def test_the_next_cold_start_begins_there(hanging: Hanging) -> None:
    hanging.goes(playbook="playbooks/stop.yml")
    hanging.goes()
    assert hanging.words[-1] == "--enforce-eager"
    assert "Paris" in hanging.answer()
    assert len(hanging.restarts()) == 3


def test_a_first_start_that_hangs_climbs_within_the_run(hanging: Hanging) -> None:
    hanging.goes(playbook="playbooks/stop.yml")
    (hanging.cluster_dir / "ladder.json").unlink()
    began = time.time()
    ran = hanging.goes("-e", "vllm_silence_seconds=45")
    print(f"serves after {time.time() - began:.0f} s")
    said = " ".join(ran.output.split())
    again = "chat has not answered and is started again with"
    assert f"{again} --compilation-config" in said and f"{again} --enforce-eager" in said
    assert hanging.words[-1] == "--enforce-eager" and "Paris" in hanging.answer()
    # The watchdog has restarted nothing: the run did.
    assert len(hanging.restarts()) == 3
    assert hanging.goes().changed == []


def test_it_is_given_up_on_request(hanging: Hanging) -> None:
    hanging.trigger.unlink()
    ask = ("-e", json.dumps({"forget_rungs": True, "allow_disruption": True}))
    hanging.goes(*ask)
    assert "--enforce-eager" not in hanging.words
    assert not (hanging.cluster_dir / "ladder.json").exists()
    assert hanging.goes().changed == []


def test_with_off_nothing_is_started_again_and_teardown_leaves_nothing(hanging: Hanging) -> None:
    off = ("-e", json.dumps({"watchdog_restart": "off", "watchdog_mode": "observe"}))
    hanging.goes(*off)
    assert not (hanging.cluster_dir / "processes/watchdog-restarts.json").exists()
    hanging.kill()
    wait_until(lambda: "ended" in hanging.findings(), 5 * MINUTE, "the end of the engine named")
    time.sleep(MINUTE)
    assert "ended" in hanging.findings() and len(hanging.restarts()) in (0, 3)
    hanging.goes(playbook="playbooks/teardown.yml")
    assert of_cluster(hanging.cluster_dir) == []
