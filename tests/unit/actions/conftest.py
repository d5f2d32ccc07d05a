"""A host without root whose processes run under a real supervisord."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process import process, supervisord


@pytest.fixture
def host(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Give a host without root, and leave no process of it behind."""
    if importlib.util.find_spec("supervisor") is None:
        pytest.skip("the package supervisor is not installed beside pytest")
    cluster_dir = tmp_path / "c"
    cluster_dir.mkdir()
    (cluster_dir / "tools").symlink_to(sys.prefix)
    # Not below tmp_path, whose name is too long for a unix socket.
    with tempfile.TemporaryDirectory(prefix="vllm-") as run_dir:
        yield {
            "cluster_dir": str(cluster_dir),
            "run_dir": run_dir,
            "privileges": "none",
            "supervisor": "supervisord",
        }
        # Only what a test that failed half way has left.
        backend = supervisord.Supervisord(str(cluster_dir), run_dir, sys.executable)
        for name in process.recorded_names(str(cluster_dir)):
            files = process.Files(str(cluster_dir), name)
            backend.stop(files, process.read_json(files.record), 1)
            backend.remove(files)
            # supervisord ends with the last process that is recorded.
            Path(files.record).unlink(missing_ok=True)
