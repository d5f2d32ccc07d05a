"""Processes that steps start and stop, under a real supervisord; a real play."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from vllm_ansible.inventory.site_host import supervisor_dir


def test_root_keeps_its_socket_apart_from_what_the_service_may_write() -> None:
    assert supervisor_dir({"run_dir": "/run/c", "privileges": "none"}) == "/run/c"
    assert supervisor_dir({"run_dir": "/run/c", "privileges": "root"}) == "/run/c-supervisord"


def alive(pid_file: Path) -> bool:
    return Path(f"/proc/{pid_file.read_text().strip()}").exists()


def test_steps_start_once_stop_and_end_at_the_first_that_fails(
    play: Any, host: dict[str, Any], tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    shell = shutil.which("sh") or "/bin/sh"
    line = f"echo $$ > {pid_file}; exec {shutil.which('sleep')} 600"
    # As engine_decision returns a step: with what is for people and for the order.
    ray = {
        **{"phase": "start_heads", "host": "here", "part": "head", "order": 0, "digest": "d"},
        **{"name": "a-ray", "engine": "a", "state": "started", "argv": [shell, "-c", line]},
        **{"environment": {"A": "1"}, "depends": {}, "limits": {}, "user": None},
    }
    broken = {**ray, "name": "a-serve", "argv": [f"{tmp_path}/no-such-program"]}
    gone = [{"name": name, "engine": "a", "state": "absent"} for name in ("a-serve", "a-ray")]

    def phase(name: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
        arguments = {"steps": list(steps), "host": host, "cluster": "demo"}
        return {"name": name, "engine_phase": arguments, **more}

    played = play(
        [
            phase("nothing to do"),
            phase("check", ray, check_mode=True),
            phase("start", ray),
            phase("fail", ray, broken, ray),
            phase("stop", *gone),
        ]
    )
    nothing = played["nothing to do"]
    assert not nothing["changed"] and nothing["done"] == nothing["commands"] == []
    command = f"{shell} -c '{line}'"
    for name in ("check", "start"):
        assert played[name]["changed"] and played[name]["commands"] == [command], name
    (done,) = played["start"]["done"]
    assert (done["name"], done["action"]) == ("a-ray", "start")
    assert done["log"] == f"{host['cluster_dir']}/logs/a-ray.log"

    failed = played["fail"]
    assert failed["failed"] and "a-serve could not be started" in failed["msg"]
    assert failed["fix"] and f"{tmp_path}/no-such-program" in failed["command"]
    # What ran already was left alone, and the step after the failure was not taken.
    assert [(one["name"], one["action"]) for one in failed["done"]] == [("a-ray", "none")]

    stopped = played["stop"]
    assert stopped["changed"] and stopped["commands"] == []
    assert [one["action"] for one in stopped["done"]] == ["remove", "remove"]
    assert not alive(pid_file)
    assert os.listdir(f"{host['cluster_dir']}/processes") in ([], [".lock"])
