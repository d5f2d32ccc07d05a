"""Whether a rented machine is fit: it answers, and its accelerators are what its type has."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def mixed_up() -> dict[str, Any]:
    """Return what two devices did of which one gets other bytes than the other sends."""
    probe: dict[str, Any] = json.loads((ROOT / "tests/data/h100-probe.json").read_text())
    probe["peers"]["pairs"][0]["wrong_words"] = 9
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
        # Where the machine's own mark goes.
        "HOME": str(directory),
        "ANSIBLE_LIBRARY": f"{library}:{ROOT / 'library'}",
        "ANSIBLE_ACTION_PLUGINS": str(directory / "action_plugins"),
    }


def rented(identity: str, **more: Any) -> dict[str, Any]:
    """Return the variables of a rented machine."""
    return {
        "cluster_name": "r1",
        "provision_machine": {"id": identity, "launched_here": True},
        **more,
    }


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


@pytest.mark.parametrize(
    ("probe", "words"),
    [(spoilt(), "3 elements of matmul_fp32 are wrong"), (mixed_up(), "9 words came changed")],
)
def test_one_that_computes_or_copies_wrong_is_not(
    play: Any, tmp_path: Path, probe: dict[str, Any], words: str
) -> None:
    look = play([accept()], {"one": rented("a")}, place(tmp_path, probe))["look"]
    assert not look["accepted"]
    assert words in look["reason"]
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


def test_one_that_this_state_has_not_launched_is_not_measured(play: Any, tmp_path: Path) -> None:
    # A fresh clone, while the machine serves: its probe would fail, and so would an answer.
    host = rented("a", **NOWHERE)
    host["provision_machine"]["launched_here"] = False
    look = play([accept()], {"one": host}, place(tmp_path))["look"]
    assert look["accepted"]
    assert look["told"] == "rented before, not by this state/: not measured"


def test_what_is_kept_here_may_be_lost_once_the_machine_carries_its_mark(
    play: Any, tmp_path: Path
) -> None:
    hosts = {"one": rented("a"), "two": rented("b")}
    play([accept()], hosts, place(tmp_path, PROBE))
    shutil.rmtree(tmp_path / "state")
    # Busy now: it would fail the probe.
    played = play([accept()], {**hosts, "new": rented("c")}, place(tmp_path, spoilt()))
    looks = played.tasks["look"]
    assert looks["one"]["accepted"] and looks["two"]["accepted"]
    assert looks["one"]["told"] == "found fit before, by its own mark: not measured"
    assert not looks["new"]["accepted"]


@contextmanager
def engine(cluster: Path) -> Iterator[None]:
    """Run something in a cluster's directory, as an engine does."""
    cluster.mkdir()
    process = subprocess.Popen(["sleep", "300"], cwd=cluster)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_one_that_runs_processes_of_the_cluster_is_not_measured(play: Any, tmp_path: Path) -> None:
    node = rented("12-0-node")
    # A node of an allocation: nobody says who launched it, and it keeps no mark.
    del node["provision_machine"]["launched_here"]
    cluster = tmp_path / "cluster"
    with engine(cluster):
        task = accept(cluster_dirs=[str(cluster)])
        hosts = {"one": rented("a"), "node": node}
        looks = play([task], hosts, place(tmp_path, spoilt())).tasks["look"]
    for look in looks.values():
        assert look["accepted"]
        assert look["told"] == "runs 1 processes of this cluster: not measured"


def test_the_stage_looks_for_what_serves_on_a_node_of_an_allocation() -> None:
    for name in ("slurm", "rented"):
        tasks = yaml.safe_load((ROOT / f"roles/provision/tasks/{name}.yml").read_text())
        (look,) = [one["accept_machine"] for one in tasks if "accept_machine" in one]
        assert look["cluster_dirs"] == ["{{ provision_head_dir }}"]


def test_a_node_of_an_allocation_is_measured_and_keeps_no_mark(play: Any, tmp_path: Path) -> None:
    host = rented("12-0-node")
    del host["provision_machine"]["launched_here"]
    assert play([accept()], {"one": host}, place(tmp_path, PROBE))["look"]["accepted"]
    assert list(tmp_path.glob(".vllm-ansible-fit-*")) == []
    play([accept()], {"one": rented("a")}, place(tmp_path, PROBE))
    assert [one.name for one in tmp_path.glob(".vllm-ansible-fit-*")] == [".vllm-ansible-fit-a"]
