"""An image of somebody else's in each of its forms, on a machine with a stand-in for Apptainer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ... import images


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Apptainer on PATH, and what modules of a site would set."""
    monkeypatch.setenv("PATH", f"{images.install(tmp_path / 'bin')}:{os.environ['PATH']}")
    monkeypatch.setenv("APPTAINER_BIND", images.site_binds())
    monkeypatch.setenv("PYTHONPATH", "/site/python")
    monkeypatch.setenv("PYTHONHOME", "/site/home")
    monkeypatch.setenv("CUDA_HOME", "/site/cuda")
    monkeypatch.delenv("TMPDIR", raising=False)


@pytest.fixture(params=["sandbox", "vllm.sif"])
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Make what a person may have, in each of its forms."""
    made = images.sandbox(tmp_path / "sandbox")
    return made if request.param == "sandbox" else images.sif(tmp_path / request.param, made)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Make one in a file, where its form makes no difference."""
    return images.sif(tmp_path / "vllm.sif", images.sandbox(tmp_path / "sandbox"))
