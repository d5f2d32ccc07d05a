"""What is no image that engines can run in is refused, with what was expected and the mend."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import given_image

from ....fake_uv import silent
from ... import images
from .asked import built, told, wanted


def refusal(directory: Path, given: Path, **more: Any) -> dict[str, str]:
    with pytest.raises(BuildError) as caught:
        environment.build(wanted(directory, given, **more), silent)
    assert not (Path(wanted(directory, given)["directory"]) / environment.MANIFEST).exists()
    return {"msg": str(caught.value), **caught.value.details}


def test_one_that_is_not_there_or_no_image_is_told(tmp_path: Path) -> None:
    gone = refusal(tmp_path, tmp_path / "gone.sif")
    assert gone["found"] == f"no file {tmp_path / 'gone.sif'}"
    text = tmp_path / "notes.sif"
    text.write_text("no image\n")
    assert refusal(tmp_path, text)["msg"] == "environment_path does not name an image"
    (tmp_path / "plain.sif").mkdir()
    assert "apptainer build --sandbox" in refusal(tmp_path, tmp_path / "plain.sif")["expected"]


def test_where_nothing_runs_images_that_is_told(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = built(tmp_path, file)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    told_of = refusal(tmp_path / "other", file)
    assert told_of["expected"] == "apptainer or singularity on PATH"
    assert "module load apptainer" in told_of["fix"]
    done = subprocess.run([place / "bin/vllm"], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "neither apptainer nor singularity is on PATH" in done.stderr
    monkeypatch.setenv("PATH", f"{images.install(tmp_path / 'old', 'singularity')}:/usr/bin:/bin")
    assert told(place, "x")["argv"] == ["x"]


@pytest.mark.parametrize(
    ("gone", "msg"),
    [
        ("opt/vllm/bin/ray", "the image has no command ray"),
        ("opt/vllm/bin/vllm", "the image has no command vllm"),
        (f"{images.SITE}/torch/__init__.py", "the engine does not import"),
    ],
)
def test_one_that_lacks_an_engine_is_told(tmp_path: Path, gone: str, msg: str) -> None:
    theirs = images.sandbox(tmp_path / "sandbox")
    (theirs / gone).unlink()
    assert refusal(tmp_path, images.sif(tmp_path / "vllm.sif", theirs))["msg"] == msg


def test_one_in_which_engines_cannot_compile_is_told(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = '{"sites": {}, "commands": ["vllm", "ray"], "version": "3.12", %s}'
    lacking = asked % '"compiler": false, "headers": true'
    monkeypatch.setattr(given_image, "output_of", lambda *_: lacking)
    found = refusal(tmp_path, file, compiles=True)
    assert found["found"] == "no compiler"
    assert "Python 3.12" in found["fix"]


def test_one_that_the_engines_user_may_not_read_is_told(tmp_path: Path, image: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts engines as another user")
    with pytest.raises(BuildError) as caught:
        given_image.expect(str(image), "nobody")
    assert "Permission denied" in caught.value.details["found"]
    with tempfile.TemporaryDirectory(dir="/opt") as directory:
        Path(directory).chmod(0o755)
        readable = images.sif(Path(directory) / "vllm.sif", images.sandbox(tmp_path / "again"))
        given_image.expect(str(readable), "nobody")


def test_a_directory_of_conda_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "conda/bin").mkdir(parents=True)
    (tmp_path / "conda/bin/python").touch()
    assert not given_image.is_image(str(tmp_path / "conda"))
    assert given_image.is_image("/not/yet/there.sif")
