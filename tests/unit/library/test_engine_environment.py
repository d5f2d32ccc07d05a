"""What the module does itself, before its task begins, fails in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import packed_environment

DIGEST = "d" * 64


def test_a_place_that_cannot_be_written_is_named(
    run_module: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    cluster, shared = tmp_path / "cluster", tmp_path / "shared"
    place = environment.directory(str(cluster), DIGEST)
    record = packed_environment.record_path(str(shared), place, "image")
    record.parent.mkdir(parents=True)
    (record.parent / "pack").write_bytes(b"1234")
    told = {"file": "pack", "size": 4, "wheels": {}, "fingerprint": "f", "interpreter": ""}
    record.write_text(json.dumps({**told, "python": "3.11.2"}))
    cluster.mkdir()
    (cluster / "environments").write_text("in the way")
    asked = {"cluster_dir": str(cluster), "shared_dir": str(shared), "digest": DIGEST}
    result = run_module("engine_environment", {**asked, "form": "image", "state": "proven"}, [])
    assert result["failed"] and result["fix"] and result["expected"]
    assert result["msg"].startswith("the work on the environment cannot be begun: ")
    assert result["where"].startswith(str(cluster / "environments"))
