"""Hosts know an environment by one digest of all it is made of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_ansible.environment.request import environment_request, read_package

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements/engine-cpu.txt"
PACKAGES = [ROOT / "packages/vllm_cpu_ray", ROOT / "packages/vllm_name"]


def test_every_ingredient_changes_the_digest(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("a==1\n")
    package = tmp_path / "package"
    (package / "src").mkdir(parents=True)
    (package / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\n')

    def digest(python: str = "3.11") -> str:
        return str(environment_request(lock, [package], python)["digest"])

    first = digest()
    assert digest() == first
    assert digest("3.12") != first
    (package / "src/p.py").write_text("")
    second = digest()
    assert second != first
    lock.write_text("a==2\n")
    assert digest() != second
    built = environment_request(lock, [package], "3.11", [{"name": "a", "key": "k", "cuda": ""}])
    assert built["digest"] != digest()
    assert built["wheels"] == [{"name": "a", "key": "k"}]


def test_the_plugin_travels_with_its_entry_point() -> None:
    package = read_package(PACKAGES[0])
    assert package["entry_points"]["vllm.platform_plugins"] == {"cpu_ray": "vllm_cpu_ray:register"}
    assert "vllm_cpu_ray/platform.py" in package["files"]


def test_the_bare_name_is_of_the_locked_version() -> None:
    locked = re.search(r"^vllm-cpu==(\S+)", LOCK.read_text(), re.MULTILINE)
    assert locked
    assert read_package(PACKAGES[1])["version"] == f"{locked[1]}+cpu"


@pytest.mark.parametrize("name", ["engine-cpu.txt", "engine-cuda.txt", "tools.txt"])
def test_locks_name_no_machine_and_no_index(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert "--index-url" not in text
    assert "--find-links" not in text
    assert "://" not in text
    # A pin without a hash would be refused on the host, after minutes.
    for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        if entry.strip() and not entry.startswith("#"):
            assert "--hash=sha256:" in entry, entry


def test_cuda_builds_of_vision_and_audio_stay_out_of_the_cpu_lock() -> None:
    assert not re.search(r"^(torchvision|torchaudio|torchcodec|nvidia)", LOCK.read_text(), re.M)
