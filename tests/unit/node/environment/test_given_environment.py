"""An environment of somebody else's, with ours laid over it by the real uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.environment.request import environment_request, read_package
from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import given_environment
from vllm_ansible.node.preflight import kernels

from ...fake_uv import silent

ROOT = Path(__file__).parents[4]
MODULES = {
    "vllm/__init__.py": "__version__ = '0.32.0'",
    "vllm/platforms.py": "current_platform = object()",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/serve.py": "",
    "vllm/entrypoints/cli/main.py": """
import multiprocessing, sys
def main():
    print('served', sys.argv[1:], flush=True)
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=print, args=("and so does a child",))
    child.start()
    child.join()
    return child.exitcode
""",
    "torch/__init__.py": "__version__ = '2.13.0'",
    "ray/scripts.py": "def main():\n    return 3",
}
SCRIPTS = {"vllm": "vllm = vllm.entrypoints.cli.main:main", "ray": "ray = ray.scripts:main"}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Make what a person may have, Ray being installed from a directory elsewhere."""
    place = tmp_path / "their own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    for name, text in MODULES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, version in (("vllm", "0.32.0"), ("ray", "2.60.0"), ("torch", "2.13.0")):
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if name in SCRIPTS:
            (info / "entry_points.txt").write_text(f"[console_scripts]\n{SCRIPTS[name]}\n")
    elsewhere = tmp_path / "checkout" / "ray"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("__version__ = '2.60.0'")
    shutil.move(site / "ray/scripts.py", elsewhere / "scripts.py")
    (site / "ray").rmdir()
    (site / "ray-editable.pth").write_text(f"{elsewhere.parent}\n")
    return place


def wanted(directory: Path, given: Path) -> dict[str, Any]:
    package = ROOT / "packages/vllm_guard"
    request = environment_request(Path("none"), [package], "3.11", given=str(given))
    place = environment.directory(str(directory / "cluster"), request["digest"])
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    return {
        **request,
        **{"cluster_dir": str(directory / "cluster"), "directory": str(place), "uv": uv},
        **{"requirements": f"{place}.txt", "given": str(given), "find_links": []},
        **{"torch_backend": "", "compiles": False, "compile_bytecode": True, "environment": {}},
    }


def written(place: Path) -> dict[str, float]:
    return {
        str(path): path.stat().st_mtime for path in place.rglob("*") if "pycache" not in str(path)
    }


def test_it_is_used_as_it_is_with_our_packages_over_it(tmp_path: Path, theirs: Path) -> None:
    before, asked = written(theirs), wanted(tmp_path, theirs)
    manifest = environment.build(asked, silent)
    place = Path(asked["directory"])
    guard = read_package(ROOT / "packages/vllm_guard")
    own = {guard["name"].replace("_", "-"): guard["version"]}
    assert manifest["distributions"] == {
        **{"vllm": "0.32.0", "ray": "2.60.0", "torch": "2.13.0"},
        **own,
    }
    assert (manifest["versions"]["vllm"], manifest["versions"]["ray"]) == ("0.32.0", "2.60.0")
    assert environment.look(place, asked["digest"])["complete"]
    quiet = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(
        [place / "bin/vllm", "serve", "a b"], env=quiet, capture_output=True, text=True, check=True
    )
    assert said.stdout == "served ['serve', 'a b']\nand so does a child\n"
    assert subprocess.run([place / "bin/ray"], env=quiet, check=False).returncode == 3
    both = "import sys, vllm, vllm_guard; print(sys.prefix)"
    prefix = subprocess.run(
        [place / "bin/python", "-B", "-c", both], capture_output=True, text=True, check=True
    )
    assert prefix.stdout == f"{place}\n"
    assert written(theirs) == before


def test_what_engines_compile_with_is_found_as_in_an_environment_that_was_built(
    tmp_path: Path, theirs: Path
) -> None:
    """FlashInfer 0.7 turned its kernels off on H200 where ninja was in the given one alone."""
    (theirs / "bin/ninja").write_text("#!/bin/sh\necho 1.13.2\n")
    (theirs / "bin/ninja").chmod(0o755)
    asked = wanted(tmp_path, theirs)
    environment.build(asked, silent)
    path = f"{asked['directory']}/bin"
    found = kernels.look(asked["directory"], {"chat": {"PATH": path}})["tools"]["chat"]["ninja"]
    said = subprocess.run(
        [found or "ninja is not found"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "1.13.2\n"


def test_what_its_owner_changes_is_noticed_and_taken_over(tmp_path: Path, theirs: Path) -> None:
    asked = wanted(tmp_path, theirs)
    first = environment.build(asked, silent)
    (site,) = theirs.glob("lib/python3*/site-packages")
    (site / "torch-2.13.0.dist-info").rename(site / "torch-2.14.0.dist-info")
    found = environment.look(Path(asked["directory"]), asked["digest"])
    assert found["drift"] == ["torch: expected 2.13.0, found 2.14.0"]
    second = environment.build(asked, silent)
    assert second["fingerprint"] != first["fingerprint"]
    assert environment.look(Path(asked["directory"]), asked["digest"])["complete"]


def test_one_that_is_not_there_or_lacks_an_engine_is_told(tmp_path: Path, theirs: Path) -> None:
    with pytest.raises(BuildError) as caught:
        environment.build(wanted(tmp_path, tmp_path / "nowhere"), silent)
    assert caught.value.details["found"] == f"no directory {tmp_path / 'nowhere'}"
    (site,) = theirs.glob("lib/python3*/site-packages")
    shutil.rmtree(site / "ray-2.60.0.dist-info")
    with pytest.raises(BuildError, match="the given environment has no command ray"):
        environment.build(wanted(tmp_path, theirs), silent)


def test_one_that_the_engines_user_may_not_read_is_told(theirs: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts engines as another user")
    with pytest.raises(BuildError) as caught:
        given_environment.expect_readable(str(theirs), "nobody")
    assert "Permission denied" in caught.value.details["found"]
    assert caught.value.details["where"] == str(theirs)
    with tempfile.TemporaryDirectory(dir="/opt") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "lib").mkdir()
        (Path(directory) / "bin").mkdir()
        (Path(directory) / "bin/python").touch()
        given_environment.expect_readable(directory, "nobody")


def test_another_one_is_another_environment() -> None:
    def digest(given: str) -> str:
        return str(environment_request(Path("none"), [], "3.11", given=given)["digest"])

    assert digest("/a") != digest("/b")
