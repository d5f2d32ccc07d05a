"""The administrator's script is written once, for those hosts that a run may not mend."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def judged(mode: str, needed: bool = True) -> dict[str, Any]:
    difference = {
        "what": "the clock",
        "expected": "kept",
        "found": "not kept",
        "fix": "install chrony",
        "needed": needed,
        "on_host": True,
    }
    repair = {"packages": ["chrony"], "files": [], "modules": [], "services": []}
    return {
        "time": {
            "mode": mode,
            "why": "",
            "differences": [difference],
            "notes": [],
            "repair": {**repair, "commands": [], "script": []},
        }
    }


def played(play: Any, tmp_path: Path, mode: str, privileges: str, needed: bool = True) -> Any:
    hosts = [{"name": "here", "privileges": privileges, "address": "127.0.0.1"}]
    facts = {"__system_judged": judged(mode, needed)}
    return play(
        [
            {"name": "keep", "ansible.builtin.set_fact": facts},
            {"name": "write", "system_script": {"judged": "__system_judged", "hosts": hosts}},
        ],
        environment={"VLLM_ANSIBLE_RUN_DIR": str(tmp_path)},
    )["write"]


def test_without_root_the_script_lies_in_the_directory_of_the_run(
    play: Any, tmp_path: Path
) -> None:
    found = played(play, tmp_path, "manage", "none")
    script = tmp_path / "administrator.sh"
    assert found["path"] == str(script)
    assert "install chrony\n" in script.read_text()
    assert "is_host 127.0.0.1" in script.read_text()


def test_with_root_it_is_written_for_what_is_only_checked(play: Any, tmp_path: Path) -> None:
    assert played(play, tmp_path, "check", "root")["path"]
    (tmp_path / "administrator.sh").unlink()
    assert played(play, tmp_path, "manage", "root")["path"] == ""
    assert not (tmp_path / "administrator.sh").exists()


def test_what_is_not_needed_asks_no_administrator(play: Any, tmp_path: Path) -> None:
    assert played(play, tmp_path, "check", "none", needed=False)["path"] == ""


def test_a_stage_that_was_left_out_is_named(play: Any, tmp_path: Path) -> None:
    found = play([{"name": "write", "system_script": {"judged": "__system_judged", "hosts": []}}])[
        "write"
    ]
    assert found["failed"]
    assert "__system_judged" in found["msg"]
