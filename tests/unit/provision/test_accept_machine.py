"""Whether a rented machine is fit: it answers, and its accelerators are what its type has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from vllm_ansible.provision.accepted import refuses_login

ROOT = Path(__file__).parents[3]
PROBE = json.loads((ROOT / "tests/data/h200-probe.json").read_text())
STAND_IN = """#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"seconds": {"type": "float"}, "bytes": {"type": "int"}})
module.exit_json(probe=%r)
"""


def spoilt() -> dict[str, Any]:
    """Return what a device did that computes wrong now and then."""
    probe: dict[str, Any] = json.loads(json.dumps(PROBE))
    probe["devices"][0]["matmul_fp32"]["wrong_elements"] = 3
    return probe


def place(directory: Path, probe: dict[str, Any] | None = None) -> dict[str, str]:
    """Copy what is tested, so that state/ is the test's own; say in the probe's place what it did.

    Without a probe, a look at a device fails the task.
    """
    library = directory / "library"
    library.mkdir(exist_ok=True)
    text = "raise SystemExit(1)\n" if probe is None else STAND_IN % probe
    (library / "accelerator_probe.py").write_text(text)
    if not (directory / "src").exists():
        (directory / "src").symlink_to(ROOT / "src")
        shutil.copytree(ROOT / "action_plugins", directory / "action_plugins")
    return {
        "ANSIBLE_LIBRARY": f"{library}:{ROOT / 'library'}",
        "ANSIBLE_ACTION_PLUGINS": str(directory / "action_plugins"),
    }


def rented(identity: str, **more: Any) -> dict[str, Any]:
    """Return the variables of a rented machine."""
    return {"cluster_name": "r1", "provision_machine": {"id": identity}, **more}


def accept(**more: Any) -> dict[str, Any]:
    return {"name": "look", "accept_machine": {"patience_seconds": 0, **more}}


def test_one_that_answers_and_computes_is_accepted(play: Any, tmp_path: Path) -> None:
    played = play(
        [accept(), {**accept(), "name": "check", "check_mode": True}],
        {
            "one": rented("a", accelerator_count=1),
            "two": rented("b", accelerator_count=2),
            "cpu": rented("c", accelerator="cpu"),
        },
        place(tmp_path, PROBE),
    )
    found = played.tasks["look"]
    assert (found["one"]["accepted"], found["one"]["changed"]) == (True, False)
    assert found["one"]["told"]
    assert not found["two"]["accepted"]
    assert found["two"]["reason"] == "1 accelerators, 2 are expected of its type"
    assert (found["cpu"]["accepted"], found["cpu"]["told"]) == (True, "answers")
    assert found["two"].get("failed") is not True
    assert "accepted" not in played.tasks["check"]["one"]


def test_one_that_computes_wrong_is_not(play: Any, tmp_path: Path) -> None:
    look = play([accept()], {"one": rented("a")}, place(tmp_path, spoilt()))["look"]
    assert not look["accepted"]
    assert "expected" in look["reason"]


NOWHERE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}


def test_one_that_does_not_answer_is_not(play: Any, tmp_path: Path) -> None:
    host = rented("a", accelerator="cpu", **NOWHERE)
    look = play([accept()], {"one": host}, place(tmp_path))["look"]
    assert not look["accepted"]
    assert look["reason"].startswith("no answer for 0 s: ")
    assert "refused" in look["reason"]


def test_one_that_was_accepted_is_not_looked_at_again(play: Any, tmp_path: Path) -> None:
    first = play([accept()], {"one": rented("a")}, place(tmp_path, PROBE))["look"]
    assert first["accepted"]
    # Out of reach, and busy: neither may end a machine that serves.
    again = play([accept()], {"one": rented("a", **NOWHERE)}, place(tmp_path))["look"]
    assert (again["accepted"], again["told"]) == (True, first["told"])
    other = play([accept()], {"one": rented("b", **NOWHERE)}, place(tmp_path))["look"]
    assert not other["accepted"]


def test_a_login_that_is_refused_is_a_reason_in_the_words_of_ssh(play: Any, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ubuntu@h: Permission denied (publickey).' >&2\nexit 255\n")
    ssh.chmod(0o755)
    host = rented("a", ansible_connection="ssh", ansible_ssh_executable=str(ssh))
    look = play([accept()], {"one": host}, place(tmp_path))["look"]
    assert not look["accepted"]
    assert refuses_login(look["reason"])


def test_a_connection_that_is_lost_while_it_is_looked_at_is_a_reason(
    play: Any, tmp_path: Path
) -> None:
    ssh = tmp_path / "ssh"
    # It answers the first question and none after it.
    ssh.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/asked ] && exit 255\n"
        f'for last; do :; done\ntouch {tmp_path}/asked\nexec /bin/sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    host = rented("a", ansible_connection="ssh", ansible_ssh_executable=str(ssh))
    look = play([accept()], {"one": host}, place(tmp_path, PROBE))["look"]
    assert look["accepted"] is False
    assert look["reason"].startswith("lost while it was looked at")
