"""A container that was started again on its disk: what ran is started, in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from ..conftest import SOURCE, Host, alive, wait_until

ROOT = Path(__file__).parents[4]
SLEEP = {"argv": ["/bin/sleep", "600"]}


def deployed(directory: Path, host: Host) -> list[str]:
    """Put the program and its parts where the role puts them; return its command."""
    said = yaml.safe_load((ROOT / "roles/provision/vars/main.yml").read_text())
    directory.mkdir()
    shutil.copy(ROOT / "roles/provision/files/again.py", directory)
    for part in said["provision_again_parts"]:
        place = directory / "node" / part
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / "vllm_ansible/node" / part, place)
    settings = {
        "cluster_dir": str(host.cluster_dir),
        "run_dir": host.run_dir,
        "python": sys.executable,
    }
    assert set(settings) == set(said["provision_again_settings"])
    (directory / "settings.json").write_text(json.dumps(settings))
    return ["-s", "-E", str(directory / "again.py"), str(directory / "settings.json")]


def test_what_ran_is_started_again_in_order_and_what_was_stopped_stays_so(
    host: Host, node_python: str
) -> None:
    program = deployed(host.root / "again", host)
    names = ("zeta-ray", "alpha-serve", "beta-serve")
    before = {name: host.manage(SLEEP, name=name) for name in names}
    host.manage(name="beta-serve", state="stopped")
    # As a container ends: supervisord, launchers and processes at once, and the disk stays.
    for pid in host.everything():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: host.everything() == [])

    def start() -> list[str]:
        done = subprocess.run(
            [node_python, *program], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return [line.split(" ", 1)[1] for line in done.stdout.splitlines()]

    assert start() == ["zeta-ray: started again", "alpha-serve: started again"]
    found = host.processes()
    assert [found[name]["running"] for name in names] == [True, True, False]
    for name in names[:2]:
        # The next run of site.yml finds them as it left them.
        again = host.manage(SLEEP, name=name)
        assert not again["changed"] and again["digest"] == before[name]["digest"]
        assert again["pid"] != before[name]["pid"] and alive(again["pid"])
    assert start() == ["zeta-ray: runs", "alpha-serve: runs"]


def test_one_that_cannot_be_started_is_named_and_keeps_no_other_from_it(
    host: Host, node_python: str
) -> None:
    program = deployed(host.root / "again", host)
    for name in ("alpha-serve", "beta-serve"):
        host.manage(SLEEP, name=name)
    for pid in host.everything():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: host.everything() == [])
    record = host.cluster_dir / "processes/alpha-serve.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "user": "nobody-has-this-name"}))
    done = subprocess.run(
        [node_python, *program], capture_output=True, text=True, timeout=120, check=False
    )
    record.write_text(json.dumps(content))
    assert "alpha-serve: could not be started" in done.stdout, done.stdout + done.stderr
    assert "site.yml starts it" in done.stdout
    assert "beta-serve: started again" in done.stdout
