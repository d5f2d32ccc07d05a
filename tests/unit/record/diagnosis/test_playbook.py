"""`playbooks/diagnose.yml` and `vllm-ansible diagnose` over the records and logs of a real host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.flows.clone import Clone, Ran

LOG = """\
(APIServer pid=71) INFO 11-23 10:00:00 [launcher.py:58] Route: /health, Methods: GET
(EngineCore pid=72) ERROR 11-23 10:00:08 [core.py:1] RuntimeError: No CUDA GPUs are available
(APIServer pid=71) ERROR 11-23 10:00:09 [core_client.py:600] Engine core proc EngineCore_DP0 died \
unexpectedly, shutting down client.
(APIServer pid=71) INFO 11-23 10:00:09 [x.py:1] password=verysecretpassword1
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a cluster whose server ended by itself."""
    directory = tmp_path_factory.mktemp("hosts") / "c1"
    for name in ("processes", "logs", "evidence"):
        (directory / name).mkdir(parents=True)
    log = directory / "logs/chat-serve.log"
    log.write_text(LOG)
    record = {
        **{"name": "chat-serve", "engine": "chat", "cluster": "c1", "supervisor": "supervisord"},
        **{"digest": "d", "argv": ["vllm"], "log": str(log), "log_offset": 0},
        "state_path": str(directory / "processes/chat-serve.state.json"),
    }
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    gone = {"pid": None, "start_time": None}
    state = {"instance": "i", "boot_id": boot, "launcher": gone, "process": gone}
    state |= {"started_at": 1.0, "ended_at": 9.0, "exit_status": 0}
    (directory / "processes/chat-serve.json").write_text(json.dumps(record))
    (directory / "processes/chat-serve.state.json").write_text(json.dumps(state))
    (directory / "evidence/verify.json").write_text(json.dumps({"clocks": {"h-01": 1.5}}))
    return directory


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("clone") / "clone")


def inventory(file: Path, cluster: Path, lost: bool = False) -> Path:
    host = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    away = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_connection": "ssh"}
    hosts = {"h-01": host, **({"h-02": away} if lost else {})}
    variables = {"cluster_name": "c1", "cluster_dir": str(cluster), "privileges": "none"}
    variables["data_plane_interface"] = "lo"
    file.write_text(
        yaml.safe_dump({"all": {"children": {"gpu": {"hosts": hosts, "vars": variables}}}})
    )
    return file


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handed") / "out.tar.gz"


@pytest.fixture(scope="module")
def died(
    clone: Clone, cluster: Path, bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """Return what the command made of it: its exit status, its page, and the record of its run."""
    hosts = inventory(tmp_path_factory.mktemp("inventory") / "hosts.yml", cluster)
    runs = tmp_path_factory.mktemp("runs")
    clean = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "vllm_ansible.cli.main", "diagnose"),
            *("-i", str(hosts), "--checkout", str(clone.directory), "--bundle", str(bundle)),
        ],
        env={**clean, "VLLM_ANSIBLE_RUNS_DIR": str(runs)},
        cwd=clone.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout, done.stderr
    return Ran(done.returncode, done.stdout, runs)


def test_one_page_names_what_does_not_run_and_its_first_cause(died: Ran) -> None:
    assert died.status == 1, died.output
    assert died.output.startswith("  wrong   chat does not run: on h-01: chat-serve ended")
    assert "found   RuntimeError: No CUDA GPUs are available" in died.output


def test_the_run_fails_with_the_same_and_changes_nothing(died: Ran) -> None:
    (failure,) = died.of("failure")
    assert failure["msg"].startswith("chat does not run: on h-01: chat-serve ended")
    assert failure["found"] == "RuntimeError: No CUDA GPUs are available"
    assert failure["where"] == "h-01 chat-serve (EngineCore), line 2 of its log"
    assert "CUDA_VISIBLE_DEVICES hides them" in failure["cause"]
    assert "What distinguishes them" in failure["otherwise"]
    assert died.changed == []


def test_answer_facts_and_logs_lie_in_the_run(died: Ran) -> None:
    answer = json.loads((died.directory / "diagnosis.json").read_text())
    assert answer["clocks"] == {"h-01": 1.5}
    assert answer["evidence"][0]["time"] == "11-23 10:00:06"
    facts: dict[str, Any] = json.loads((died.directory / "facts.json").read_text())["facts"]
    assert facts["h-01"]["interface"] == {"value": "lo", "source": "looked at just now"}
    log = (died.directory / "logs/h-01-chat-serve.log").read_text()
    assert "No CUDA GPUs" in log and "verysecretpassword1" not in log


def test_a_host_that_does_not_answer_is_named(clone: Clone, cluster: Path, tmp_path: Path) -> None:
    ran = clone.run(
        inventory(tmp_path / "hosts.yml", cluster, lost=True), playbook="playbooks/diagnose.yml"
    )
    assert ran.status != 0
    told = next(one for one in ran.of("failure") if "h-02" in one["msg"])
    assert told["msg"].startswith("no answer from h-02; chat does not run")
    answer = json.loads((ran.directory / "diagnosis.json").read_text())
    assert answer["state"][0] == "no answer from h-02"


def test_what_there_is_can_be_handed_on(died: Ran, bundle: Path) -> None:
    assert died.status == 1
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
    for name in ("diagnosis.txt", "facts.json", "events.jsonl", "logs/h-01-chat-serve.log"):
        assert f"diagnosis/{name}" in names
    assert bundle.stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_was_stopped_has_nothing_wrong(
    clone: Clone, cluster: Path, tmp_path: Path
) -> None:
    record = cluster / "processes/chat-serve.json"
    before = record.read_text()
    record.write_text(json.dumps({**json.loads(before), "stopped": True}))
    try:
        hosts = inventory(tmp_path / "hosts.yml", cluster)
        ran = clone.run(hosts, playbook="playbooks/diagnose.yml")
    finally:
        record.write_text(before)
    assert ran.status == 0, ran.output
    (found,) = ran.evidence("diagnose")
    assert found["summary"].startswith("every process runs that no command stopped; 1 logs")
