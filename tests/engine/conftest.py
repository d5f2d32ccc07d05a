"""A real engine's environment, built once by our own code and kept under build/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import bytecode
from vllm_ansible.environment.request import environment_request
from vllm_ansible.lab.cache import machine_uv_cache
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import models

ROOT = Path(__file__).parents[2]
# Another place for it, where one is at hand already.
PLACE = os.environ.get("VLLM_ANSIBLE_TEST_CLUSTER_DIR", str(ROOT / "build/engine-tests"))
PACKAGED = models.Model("package", "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def engine(engine_uv: str) -> Path:
    """Return the directory of an environment with vLLM, Ray and the platform plugin."""
    request = environment_request(
        ROOT / "requirements/engine-cpu.txt",
        [ROOT / "packages/vllm_cpu_ray", ROOT / "packages/vllm_name"],
        "3.11",
    )
    place = environment.directory(PLACE, request["digest"])
    if not environment.look(place, request["digest"])["complete"]:
        wanted = {
            **request,
            "cluster_dir": PLACE,
            "directory": str(place),
            "requirements": str(ROOT / "requirements/engine-cpu.txt"),
            "uv": engine_uv,
            "find_links": [],
            "torch_backend": "cpu",
            "compiles": False,
            "compile_bytecode": True,
            "environment": {},
        }
        environment.build(wanted, lambda *_: None)
        bytecode.share(place / "lib/python3.11/site-packages", machine_uv_cache())
    return place


@pytest.fixture(scope="session")
def engine_uv() -> str:
    """Return the uv that fetches packages."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv, "uv is expected beside this Python: make dev"
    return uv


@pytest.fixture(scope="session")
def run_engine_python(
    engine: Path,
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run a text under the engine's Python."""

    # vLLM leaves sockets where temporary files go, whose paths have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vllm-") as place:
        yield partial(_run, environment.python(engine), place)


def _run(
    python: Path, place: str, text: str, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    variables = {
        **os.environ,
        "TMPDIR": place,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **options.pop("environment", {}),
    }
    command = [str(python), "-c", text, *arguments]
    return subprocess.run(
        options.pop("before", []) + command,
        env=variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        **options,
    )


@pytest.fixture(scope="session")
def scripts() -> dict[str, str]:
    """Return the programs that the role weights hands to hosts."""
    files = (ROOT / "roles/weights/files").glob("*.py")
    return {path.stem: path.read_text() for path in files}


@pytest.fixture(scope="session")
def weights_request(engine: Path, engine_uv: str, scripts: dict[str, str]) -> dict[str, Any]:
    """Return what the module model_weights hands to the work, but for the directory of models."""
    return {
        "python": str(environment.python(engine)),
        "uv": engine_uv,
        "scripts": scripts,
        "environment": {},
    }


@pytest.fixture(scope="session")
def models_dir(
    tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]
) -> Callable[[str], Path]:
    """Make tiny random models, each once."""
    directory = tmp_path_factory.mktemp("models")

    def model(name: str) -> Path:
        one = models.Model("random", name)
        if models.look(one, str(directory)) is None:
            request = {**weights_request, "models_dir": str(directory)}
            weights.fetch(one, request, lambda *_: None)
        return Path(one.place(str(directory)))

    return model


@pytest.fixture(scope="session")
def packaged_dir(tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]) -> Path:
    """Return a directory of models with the packaged one alone; its conversion takes 16 s."""
    directory = tmp_path_factory.mktemp("packaged")
    request = {**weights_request, "models_dir": str(directory)}
    record = weights.fetch(PACKAGED, request, lambda *_, **__: None)
    assert models.look(PACKAGED, str(directory)) == record
    return directory
