"""What a host tells Prometheus of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flows.clone import wait_until
from tests.unit.door.running import make_certificate
from vllm_ansible.node.engine.metrics import total
from vllm_ansible.node.observe import main

ROOT = Path(__file__).parents[4]
OPENSSL = "/usr/bin/openssl"
FACT = {
    "name": "vllm_limit_first_token_seconds",
    "labels": {"engine": "chat"},
    "value": 10,
    "help": "A limit.",
}


def settings(directory: Path, **more: Any) -> dict[str, Any]:
    return {
        "file": str(directory / "vllm_cluster.prom"),
        "facts": [FACT],
        "certificates": {"door": f"{directory}/*.crt"},
        "openssl": OPENSSL,
        **more,
    }


@pytest.mark.skipif(not os.path.exists(OPENSSL), reason="no openssl here")
def test_facts_and_the_end_of_the_newest_certificate_are_published(tmp_path: Path) -> None:
    (tmp_path / "old.crt").write_text("no certificate")
    os.utime(tmp_path / "old.crt", (1, 1))
    make_certificate(tmp_path)
    now = time.time()
    text = main.text(settings(tmp_path), now)
    assert total(text, "vllm_limit_first_token_seconds", 'engine="chat"') == 10
    end = total(text, main.END, 'certificate="door"')
    # make_certificate's is valid for two days.
    assert 2 * 86400 - 600 < end - now < 2 * 86400 + 600
    assert total(text, "vllm_written_timestamp_seconds") == pytest.approx(now, abs=1)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_without_a_certificate_nothing_is_said_of_its_end(
    tmp_path: Path, content: str | None
) -> None:
    if content:
        (tmp_path / "tls.crt").write_text(content)
    assert main.END not in main.text(settings(tmp_path), 1.0)
    assert main.END not in main.text(settings(tmp_path, openssl="/nowhere/openssl"), 1.0)


def test_it_writes_until_it_is_asked_to_end_and_leaves_nothing(tmp_path: Path) -> None:
    """From files in one directory, as the role puts them, without our package."""
    program = tmp_path / "program"
    source = ROOT / "src/vllm_ansible/node"
    variables = yaml.safe_load((ROOT / "roles/observe/vars/main.yml").read_text())
    for name in variables["observe_program_files"]:
        place = program / "node" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((source / name).read_text())
    start = (ROOT / "roles/observe/files/main.py").read_text()
    (program / "main.py").write_text(start)
    page = {"file": str(tmp_path / "cluster.json"), "user": "observe", "key_file": "/nowhere"}
    plan = {"cluster": "r1", "engines": [], "hosts": []}
    wanted = settings(tmp_path, page={**page, "url": "http://127.0.0.1:9", "plan": plan})
    (tmp_path / "facts.json").write_text(json.dumps(wanted))
    command = [sys.executable, "-s", "-E", str(program / "main.py"), str(tmp_path / "facts.json")]
    running = subprocess.Popen(command, cwd="/")
    file, shown = Path(wanted["file"]), Path(page["file"])
    try:
        wait_until(shown.exists, 60, "its files")
        # What it shows of a cluster is written although Prometheus is not there.
        assert json.loads(shown.read_text())["problem"].startswith("Prometheus does not answer")
        assert total(file.read_text(), "vllm_limit_first_token_seconds") == 10
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    assert not file.exists() and not shown.exists()
