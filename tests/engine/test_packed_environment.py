"""vLLM, Ray and torch from a pack: built once, then taken by a host that has nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from vllm_ansible.environment.request import environment_request
from vllm_ansible.node.environment import image_mount
from vllm_ansible.node.environment import work as environment_work

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements/engine-cpu.txt"
NOBODY = 65534


class Site:
    """Hosts with one path for a cluster's directory; the next one begins with nothing in it."""

    def __init__(self, directory: Path, uv: str) -> None:
        self.cluster = directory / "cluster"
        packages = [ROOT / "packages" / name for name in ("vllm_cpu_ray", "vllm_name")]
        self.asked: dict[str, Any] = {
            **environment_request(LOCK, packages, "3.11"),
            **{"cluster_dir": str(self.cluster), "shared_dir": str(directory / "shared")},
            **{"requirements": str(LOCK), "uv": uv, "find_links": [], "torch_backend": "cpu"},
            **{"environment": {}, "compiles": False, "compile_bytecode": True},
            **{"given": "", "user": ""},
        }

    def run(self, form: str, state: str) -> Path | None:
        """Return where the environment lies, or nothing when there was nothing to do."""
        wanted = environment_work.complete({**self.asked, "form": form, "state": state})
        found = environment_work.look(wanted)
        if not environment_work.changes(wanted, found):
            return None
        environment_work.work(wanted, found)(wanted, lambda *_: None)
        assert environment_work.look(wanted)["complete"]
        return Path(wanted["directory"])

    def next_host(self) -> None:
        for place in image_mount.below(str(self.cluster)):
            image_mount.unmount(place, os.environ)
        shutil.rmtree(self.cluster)


@pytest.fixture
def site(tmp_path: Path, engine_uv: str) -> Iterator[Site]:
    # Others may not enter where pytest's directories are.
    with TemporaryDirectory(dir="/opt" if os.geteuid() == 0 else tmp_path) as directory:
        Path(directory).chmod(0o755)
        made = Site(Path(directory), engine_uv)
        yield made
        made.next_host()


def versions(place: Path, home: Path, user: int | None) -> list[str]:
    """Return what the engine says of itself, imported by a user who may write nothing there."""
    lines = "import ray, torch, vllm; print(ray.__version__, vllm.__version__, vllm.__file__)"
    said = subprocess.run(
        [place / "bin/python", "-c", lines],
        cwd="/",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        user=user,
        check=True,
        capture_output=True,
        text=True,
    )
    return said.stdout.split()[-3:]


@pytest.mark.soak
def test_a_host_that_has_nothing_runs_what_another_one_has_packed(site: Site) -> None:
    user = NOBODY if os.geteuid() == 0 else None
    assert site.run("copy", "present") and not site.run("copy", "present")
    assert site.run("image", "present") and not site.run("image", "present")
    for form in ("copy", "image"):
        site.next_host()
        place = site.run(form, "proven")
        assert place and not site.run(form, "proven")
        assert image_mount.is_mounted(place) == (form == "image")
        ray, vllm, file = versions(place, site.cluster.parent, user)
        assert (ray, vllm) == ("2.60.0", "0.32.0") and file.startswith(f"{place}/")
        told = subprocess.run([place / "bin/ray", "--version"], capture_output=True, text=True)
        assert told.stdout.strip() == "ray, version 2.60.0"
