"""Stopping, starting and taking down a served cluster of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from vllm_ansible.node import launcher

from .conftest import Site
from .processes import listeners, of_cluster

pytestmark = pytest.mark.engine


def test_down_leaves_no_process_no_port_and_no_secret(served: Site) -> None:
    # Without the kernel's own range: what was let go there may be anybody's by then.
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {port for _, port in listeners(served.cluster_dir) if port < first}
    assert ports
    held = launcher.mapped({process.pid for process in of_cluster(served.cluster_dir)})
    files = launcher.shared_files()
    shared = [name for name, one in files.items() if one[:2] in held]
    assert shared, "engines have shared memory"
    ran = served.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert of_cluster(served.cluster_dir) == []
    assert not set(shared) & launcher.shared_files().keys()
    for port in ports:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("127.0.0.1", port))
    assert not served.run_dir.exists()
    left = {path.name for path in served.cluster_dir.iterdir()}
    assert left <= {"environments", "models", "tools", "tools.txt", "tasks"}


def test_down_twice_is_no_error(served: Site) -> None:
    ran = served.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
