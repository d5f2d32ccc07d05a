"""A module that is forked meets what one that is started meets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import warm

LOOK = """
import json, os, sys
found = [os.getcwd(), os.environ["WORD"], sys.argv, sys.path[0], os.umask(0), sys.executable]
print(json.dumps([*found, __name__, sys.stdin.read(), sorted(os.listdir("/proc/self/fd"))[:3]]))
print("said", file=sys.stderr)
sys.exit(3)
"""


def looked(python: str, directory: Path) -> tuple[int, list[object], str]:
    done = subprocess.run(
        [python],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "WORD": "given", warm.SOCKET: os.environ[warm.SOCKET]},
        umask=0o027,
        input=LOOK,
        capture_output=True,
        text=True,
        check=False,
    )
    found: list[object] = json.loads(done.stdout)
    return done.returncode, found, done.stderr


def test_what_a_process_is_given_it_has(tmp_path: Path) -> None:
    python, before = warm.python(), warm.used()
    forked, started = looked(python, tmp_path), looked(sys.executable, tmp_path)
    assert forked == started
    assert (forked[0], forked[1][4], forked[2]) == (3, 0o027, "said\n")
    assert warm.used() >= before > 0


PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - debug:
        msg: "{{ lookup('env', 'VLLM_ANSIBLE_WORD') }} {{ lookup('config', 'DEFAULT_FORKS') }}"
    - fail: {msg: "{{ playbook_dir }} {{ given }}"}
"""


def test_a_play_that_is_forked_is_as_one_that_is_started(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "ansible.cfg").touch()
    settings = {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_FORKS": "7"}
    environment = {**os.environ, **settings, "VLLM_ANSIBLE_WORD": "first"}
    said = []
    for _ in range(warm.LIKELY + 1):
        done = warm.play(["play.yml", "-e", "given=x", "-c", "local"], tmp_path, environment)
        said.append((done.returncode, done.stdout, done.stderr))
    assert warm.playbook(environment, tmp_path) != warm.PLAYBOOK
    assert said == said[:1] * len(said)
    assert said[0][0] == 2 and "first 7" in said[0][1] and f"{tmp_path} x" in said[0][1]
    # What Ansible reads while it plays is what this play was given.
    environment["VLLM_ANSIBLE_WORD"] = "second"
    assert "second 7" in warm.play(["play.yml", "-c", "local"], tmp_path, environment).stdout


def test_what_is_no_module_is_pythons_own(tmp_path: Path) -> None:
    told = subprocess.run([warm.python(), "-c", "print(6 * 7)"], capture_output=True, text=True)
    assert told.stdout == "42\n"
    # As for another user, who may not reach the server.
    away = {**os.environ, warm.SOCKET: str(tmp_path / "nobody")}
    alone = subprocess.run(
        [warm.python()], env=away, input="print(1)", capture_output=True, text=True
    )
    assert alone.stdout == "1\n"


def test_only_plays_with_the_same_settings_are_forked_by_the_name_of_the_program(
    tmp_path: Path,
) -> None:
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "ansible.cfg").touch()
    place = warm.on_path()
    asked = place / "asked.json"

    def run(*command: str, **changes: str) -> tuple[int, str]:
        settings = {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_FORKS": "7"}
        environment = {**os.environ, **settings, "VLLM_ANSIBLE_WORD": "first", **changes}
        environment["PATH"] = f"{place}:{environment['PATH']}"
        asked.unlink(missing_ok=True)
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def play(**changes: str) -> tuple[int, str]:
        return run("ansible-playbook", "play.yml", "-e", "given=x", "-c", "local", **changes)

    def inventory(verbosity: str) -> tuple[int, str]:
        return run("ansible-inventory", "--list", "-i", "a,b", ANSIBLE_VERBOSITY=verbosity)

    listed = inventory("0")
    assert listed[0] == 0 and '"b"' in listed[1] and asked.exists()
    started = play()
    assert started[0] == 2 and "first 7" in started[1] and asked.exists()
    warm.serve_named(place, tmp_path)
    assert play() == started and not asked.exists()
    other = play(ANSIBLE_FORKS="9", VLLM_ANSIBLE_WORD="second")
    assert other[0] == 2 and "second 9" in other[1] and asked.exists()
    assert "second 7" in play(VLLM_ANSIBLE_WORD="second")[1] and not asked.exists()
    assert inventory("0") == listed and not asked.exists()
    assert inventory("1")[0] == 0 and asked.exists()
    versions = [[one, "--version"] for one in (warm.PLAYBOOK, *[place / "ansible-playbook"] * 2)]
    told = [subprocess.run(one, capture_output=True, text=True).stdout for one in versions]
    assert told[0] and told == told[:1] * 3
    # A second process would have another directory for temporary files.
    dumps = [run("ansible-config", "dump") for _ in range(2)]
    assert "DEFAULT_LOCAL_TMP" in dumps[0][1] and dumps == dumps[:1] * 2
    assert warm.used() > 0
