"""What the module refuses of an engine's image before anything is loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Module = Callable[..., dict[str, Any]]


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    """Ask for an image with packages, of a docker that has none."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n[ $1 != info ] || { echo /var; exit 0; }\nexit 1\n")
    docker.chmod(0o755)
    return {
        **{"cluster_dir": str(tmp_path / "c"), "digest": "d" * 64, "tool": "docker"},
        **{"name": "a/b:1", "packages": ["extra==1.2"]},
        "environment": {"PATH": f"{tmp_path}:/bin", "PIP_INDEX_URL": "https://mirror/@simple"},
    }


@pytest.mark.parametrize("value", ["https://me:s3cret@mirror/simple", "https://s3cret@mirror"])
def test_a_password_that_the_image_would_tell_is_refused(
    value: str, run_module: Module, asked: dict[str, Any], tmp_path: Path
) -> None:
    assert run_module("engine_image", asked, [], check=True)["changed"]
    asked["environment"]["PIP_INDEX_URL"] = value
    for check in (True, False):
        result = run_module("engine_image", asked, [], check=check)
        assert result["failed"] and "a password in PIP_INDEX_URL" in result["msg"]
        assert "s3cret" not in json.dumps({**result, "invocation": None})
    assert not (tmp_path / "c").exists()
    # Without packages nothing of it comes into an image.
    assert not run_module("engine_image", {**asked, "packages": []}, [], check=True).get("failed")
