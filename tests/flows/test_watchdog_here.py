"""A real engine by Ray on this machine, without root: harmed, and started again with its Ray."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .clone import MINUTE, wait_until
from .conftest import CHAT, Site, greedy_texts
from .processes import end_all

pytestmark = [pytest.mark.engine, pytest.mark.soak]
NAMED_SECONDS = 30.0
OFF = ("-e", json.dumps({"watchdog_restart": "off"}))


class Watched(Site):
    """One engine of one rank, whose Ray is on the same host."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "watched")
        engine = {**CHAT, "vllm_args": {**CHAT["vllm_args"], "enforce_eager": True}}
        self.variables |= {
            **{"engines": [engine], "accelerator_count": 1, "port_base": 27500},
            **{"watchdog_mode": "observe", "watchdog_restart": "auto", "watchdog_restarts": 10},
        }
        self.inventory = self.clone.inventory("watched", self.hosts, **self.variables)

    def read(self, path: Path) -> dict[str, Any]:
        return dict(json.loads(path.read_text())) if path.exists() else {}

    @property
    def findings(self) -> list[dict[str, Any]]:
        state = self.read(self.run_dir / "watchdog/state.json")
        return [*state.get("findings", []), *state.get("past", [])]

    @property
    def restarts(self) -> list[dict[str, Any]]:
        state = self.read(self.cluster_dir / "watchdog/restarts/state.json")
        return list(state.get("engines", {}).get("chat", {}).get("restarts", []))

    def find(self, title: str) -> int:
        """Return the number of the process of the Ray node that has this in its first word."""
        marker = f"{self.cluster_dir}/processes/chat-ray.json".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(bytes(1))[0].decode().split(" ")
                if title in words[0] and marker in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        (pid,) = found
        return pid

    def harm(self, title: str, number: int) -> tuple[float, dict[str, Any]]:
        """Send a signal; return after how many seconds it was named, and the restart that came."""
        before, began, pid = len(self.restarts), time.time(), self.find(title)
        os.kill(pid, number)

        def named() -> float:
            return min(
                (one["named_at"] for one in self.findings if one["named_at"] >= began), default=0.0
            )

        seconds = wait_until(named, 3 * MINUTE, "a finding") - began
        (done,) = wait_until(
            lambda: [one for one in self.restarts[before:] if "ended_at" in one],
            10 * MINUTE,
            "an end of the restart",
        )
        print(
            f"{title} {number}: named after {seconds:.1f} s, answers after "
            f"{done['ended_at'] - began:.1f} s, {done['ended_at'] - done['at']:.1f} s of them its "
            f"start: {done}"
        )
        assert not Path(f"/proc/{pid}").exists()
        return seconds, done


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("watched"))
    ran = made.run()
    assert ran.status == 0, ran.output
    yield made
    end_all(made.cluster_dir)
    shutil.rmtree(made.cluster_dir, ignore_errors=True)
    shutil.rmtree(made.run_dir, ignore_errors=True)


@pytest.mark.parametrize(
    ("title", "number"),
    [("ray::RayWorker", signal.SIGSTOP), ("/gcs_server", signal.SIGKILL)],
)
def test_ray_is_started_again_with_its_engine(watched: Watched, title: str, number: int) -> None:
    named, restart = watched.harm(title, number)
    assert named <= NAMED_SECONDS
    assert restart["helped"], restart
    assert "Paris" in greedy_texts(watched)["chat"]["text"]


def test_afterwards_a_run_changes_nothing_and_status_says_what_helped(watched: Watched) -> None:
    ran = watched.run()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    ran = watched.run(playbook="playbooks/status.yml")
    assert ran.status == 0, ran.output
    said = " ".join(ran.output.split())
    assert "restarts: chat: helped: " in said and "it answers again" in said


def test_with_off_nothing_is_started_again(watched: Watched) -> None:
    ran = watched.run(*OFF, playbook="playbooks/serve.yml")
    assert ran.status == 0, ran.output
    assert not (watched.cluster_dir / "processes/watchdog-restarts.json").exists()
    os.kill(watched.process("chat-serve")["process"]["pid"], signal.SIGKILL)
    wait_until(
        lambda: any(one["kind"] == "ended" for one in watched.findings), 2 * MINUTE, "a finding"
    )
    time.sleep(MINUTE)
    assert "exit_status" in watched.process("chat-serve")
