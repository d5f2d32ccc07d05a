"""`playbooks/stop.yml` ends the reference that computes beside an engine."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tests import warm
from tests.flows.clone import Clone
from vllm_ansible.node.engine import reference
from vllm_ansible.node.process import background
from vllm_ansible.node.process.family import until

ONE = {"engine": "chat", "weights": "0123456789abcdef", "place": "/models/chat", "skipped": ""}


def inventory(file: Path, cluster: Path) -> Path:
    """Write an inventory of this machine alone and return its file."""
    host = {"ansible_connection": "local", "ansible_python_interpreter": warm.python()}
    variables = {"cluster_name": "c1", "cluster_dir": str(cluster), "privileges": "none"}
    variables["data_plane_interface"] = "lo"
    gpu = {"hosts": {"h-01": host}, "vars": variables}
    file.write_text(yaml.safe_dump({"all": {"children": {"gpu": gpu}}}))
    return file


def test_a_reference_ends_with_the_engines(tmp_path: Path) -> None:
    clone, cluster = Clone(tmp_path / "clone"), tmp_path / "c1"
    (cluster / "processes").mkdir(parents=True)
    tasks, pid = str(cluster / "tasks"), tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    name = reference.task_name(ONE["weights"])
    reference.start(tasks, ONE, sys.executable, script, None, retry=False)
    try:
        assert until(lambda: pid.exists() and bool(pid.read_text()), 30)
        ran = clone.run(inventory(tmp_path / "hosts.yml", cluster), playbook="playbooks/stop.yml")
        assert ran.status == 0, ran.output
        assert not Path(f"/proc/{pid.read_text()}").exists()
        assert background.look(tasks, name)["state"] != "running"
    finally:
        background.stop(tasks, name)
