"""What a host tells Prometheus of itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        "certificates": {"door": "", "load_page": "127.0.0.1:9"},
        "openssl": OPENSSL,
        **more,
    }


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """Serve a certificate as it is now; return where."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):  # who asks has seen what he came for
                context.wrap_socket(server.accept()[0], server_side=True).close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.skipif(not os.path.exists(OPENSSL), reason="no openssl here")
def test_facts_and_the_end_of_the_certificate_that_is_served_are_published(tmp_path: Path) -> None:
    """A newer file, which nobody has read yet, says nothing of what clients meet."""
    make_certificate(tmp_path)
    with serving(tmp_path) as place:
        for file in ("tls.crt", "tls.key"):
            (tmp_path / file).write_text("the next one")
        now = time.time()
        text = main.text(settings(tmp_path, certificates={"door": place}), now)
    assert total(text, "vllm_limit_first_token_seconds", 'engine="chat"') == 10
    end = total(text, main.END, 'certificate="door"')
    # make_certificate's is valid for two days.
    assert 2 * 86400 - 600 < end - now < 2 * 86400 + 600
    assert total(text, "vllm_written_timestamp_seconds") == pytest.approx(now, abs=1)


def test_without_a_certificate_nothing_is_said_of_its_end(tmp_path: Path) -> None:
    """Nobody listens, or speaks no TLS, or the program that reads it is not there."""
    assert main.END not in main.text(settings(tmp_path), 1.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        threading.Thread(target=lambda: deaf.accept()[0].close(), daemon=True).start()
        place = f"127.0.0.1:{deaf.getsockname()[1]}"
        assert main.END not in main.text(settings(tmp_path, certificates={"door": place}), 1.0)
    make_certificate(tmp_path)
    with serving(tmp_path) as place:
        wanted = settings(tmp_path, certificates={"door": place}, openssl="/nowhere/openssl")
        assert main.END not in main.text(wanted, 1.0)


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
