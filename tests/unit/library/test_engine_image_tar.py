"""Who serves the tar to other hosts is the service, so it must be able to read it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read what the service cannot")
def test_a_tar_that_the_service_cannot_read_is_refused_before_anybody_waits_for_it(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/ray_token").write_text("k" * 32)
    tar = tmp_path / "engine.tar"
    tar.write_text("tar")
    tar.chmod(0o600)
    files = [{"name": "image.tar", "bytes": 3, "sha256": "abc"}]
    result = run_module(
        "engine_image_tar",
        {
            "cluster_dir": str(tmp_path),
            "images_dir": f"{tmp_path}/images",
            "source": str(tar),
            "passed_on_by": "nobody",
            "manifests": {"image-abc": {"model": "m", "revision": "abc", "files": files}},
            "upstream": {"image.tar": {"before": [], "beside": []}},
            "addresses": {},
            "address": "127.0.0.1",
            "port": 20012,
            "key_file": f"{tmp_path}/secrets/ray_token",
        },
        [],
    )
    assert result["failed"] and result["where"] == str(tar)
    assert "nobody may not read it" in result["msg"] and "chmod o+rx" in result["fix"]
    assert not (tmp_path / "tasks").exists()
