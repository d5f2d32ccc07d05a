"""An image of somebody else's, with ours laid over it, run by a stand-in for Apptainer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ansible.environment.request import read_package
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import given_image

from ....fake_uv import silent
from ... import images
from ...conftest import alive, wait_until
from .asked import GUARD, built, told, wanted


def test_it_is_used_as_it_is_with_our_packages_over_it(tmp_path: Path, image: Path) -> None:
    before = sorted(tmp_path.joinpath("sandbox").rglob("*"))
    asked = wanted(tmp_path, image)
    manifest = environment.build(asked, silent)
    guard = read_package(GUARD)
    found = manifest["distributions"]
    assert {name: found[name] for name in ("vllm", "ray", "torch", "vllm-guard")} == {
        **{"vllm": "0.32.0", "ray": "2.60.0", "torch": "2.13.0"},
        **{guard["name"]: guard["version"]},
    }
    assert found[image.name] == given_image.stamp(str(image))
    assert manifest["versions"]["vllm"] == "0.32.0"
    place = Path(asked["directory"])
    looked = environment.look(place, asked["digest"])
    assert looked["complete"] and not looked["drift"]
    assert environment.summary(place, manifest)["apptainer"] == str(image)
    assert subprocess.run([place / "bin/ray"], check=False).returncode == 4
    assert sorted(tmp_path.joinpath("sandbox").rglob("*")) == before


def test_a_program_gets_its_words_and_variables_and_none_of_the_sites(
    tmp_path: Path, image: Path
) -> None:
    place = built(tmp_path, image)
    words = ["serve", "a b", "", "$(no)", "it's", '"', "--x=*"]
    found = told(place, *words, HOME=str(tmp_path / "cluster"), VLLM_HOST_IP="10.0.0.1")
    assert found["argv"] == words
    assert found["guard"] == str(place / "packages/vllm_guard/__init__.py")
    got = found["environ"]
    assert (got["HOME"], got["VLLM_HOST_IP"]) == (str(tmp_path / "cluster"), "10.0.0.1")
    assert got["PYTHONPATH"] == f"{place}/packages:/{images.SITE}"
    assert got["CUDA_HOME"] == "/cuda"
    assert got["PATH"].startswith("/opt/vllm/bin:")
    assert "PYTHONHOME" not in got
    assert got["PYTHONNOUSERSITE"] == "1"


def test_it_sees_what_it_is_told_of_and_nothing_else(tmp_path: Path, file: Path) -> None:
    place = built(tmp_path, file)
    for name in ("weights", "template", "run/t0", "secret", "draft", "a,b"):
        (tmp_path / name).mkdir(parents=True)
    inside = str(tmp_path / "weights/config.json")
    Path(inside).touch()
    seen = [str(tmp_path / "weights"), str(tmp_path / "run/t0"), str(tmp_path / "cluster")]
    told_of = f"--chat-template={tmp_path / 'template'}"
    variables = {"TMPDIR": seen[1], "ENGINE_BIND": str(tmp_path / "draft")}
    assert told(place, *seen, told_of, **variables)["sees"] == seen
    here = "import os, sys; print([os.path.exists(one) for one in sys.stdin.read().split()])"
    asked = [inside, *(str(tmp_path / one) for one in ("template", "draft", "run", "secret"))]
    done = subprocess.run(
        [place / "bin/python", "-c", here, str(tmp_path / "weights"), told_of, f"{tmp_path}/a,b"],
        input=" ".join(asked),
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[True, True, True, True, False]\n"


def test_what_lies_in_something_shown_is_not_shown_again(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = built(tmp_path, file)
    (tmp_path / "bin/apptainer").write_text('#!/bin/sh\necho "$3"\n')
    weights = tmp_path / "weights"
    weights.mkdir()
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/cluster/run/t0")
    words = [str(weights), f"--config={place}/image.json", f"{weights}", "/usr/bin/env", "a/b"]
    done = subprocess.run([place / "bin/vllm", *words], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/cluster,{weights}\n"


def test_an_accelerator_is_shown_to_it(tmp_path: Path, file: Path) -> None:
    assert told(built(tmp_path, file, accelerator="nvidia"), "x")["environ"]["EMULATED_FLAGS"] == (
        "--nv"
    )
    assert told(built(tmp_path / "other", file), "x")["environ"]["EMULATED_FLAGS"] == ""


@pytest.fixture
def waiting(tmp_path: Path, image: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start an engine that waits; return what was started and the process in the image."""
    place = built(tmp_path, image)
    process = subprocess.Popen([place / "bin/vllm", "wait"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    yield process, int(children.read_text())
    process.kill()
    process.wait()


def test_signals_reach_the_program_and_its_status_comes_back(
    waiting: tuple[subprocess.Popen[str], int],
) -> None:
    process, inside = waiting
    assert process.stdout is not None
    for one in (signal.SIGUSR1, signal.SIGTERM):
        process.send_signal(one)
        assert process.stdout.readline() == f"{one.name}\n"
    assert "opt/vllm/bin/vllm" in Path(f"/proc/{inside}/cmdline").read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 7


def test_a_program_ends_with_what_started_it(waiting: tuple[subprocess.Popen[str], int]) -> None:
    process, inside = waiting
    process.kill()
    wait_until(lambda: not alive(inside))


def test_another_image_in_its_place_is_noticed_and_taken_over(tmp_path: Path) -> None:
    theirs = images.sandbox(tmp_path / "sandbox")
    image = images.sif(tmp_path / "vllm.sif", theirs)
    asked = wanted(tmp_path, image)
    first = environment.build(asked, silent)
    was = given_image.stamp(str(image))
    site = theirs / images.SITE
    (site / "torch-2.13.0.dist-info").rename(site / "torch-2.14.0.dist-info")
    image.unlink()
    found = environment.look(Path(asked["directory"]), asked["digest"])
    assert (found["complete"], found["drift"]) == (
        False,
        [f"vllm.sif: expected {was}, found nothing"],
    )
    images.sif(tmp_path / "newer.sif", theirs).rename(image)
    found = environment.look(Path(asked["directory"]), asked["digest"])
    assert found["drift"] == [f"vllm.sif: expected {was}, found {given_image.stamp(str(image))}"]
    second = environment.build(asked, silent)
    assert second["distributions"]["torch"] == "2.14.0"
    assert second["fingerprint"] != first["fingerprint"]
    assert environment.look(Path(asked["directory"]), asked["digest"])["complete"]


def test_a_copy_of_an_image_is_the_same(tmp_path: Path) -> None:
    image = images.sif(tmp_path / "vllm.sif", images.sandbox(tmp_path / "sandbox"))
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copyfile(image, tmp_path / "elsewhere/vllm.sif")
    prints = {
        environment.build(wanted(directory, given), silent)["fingerprint"]
        for directory, given in ((tmp_path / "a", image), (tmp_path / "b", copy))
    }
    assert len(prints) == 1


def test_what_its_owner_changes_in_a_sandbox_is_noticed(tmp_path: Path) -> None:
    theirs = images.sandbox(tmp_path / "sandbox")
    asked = wanted(tmp_path, theirs)
    environment.build(asked, silent)
    site = theirs / images.SITE
    (site / "torch-2.13.0.dist-info").rename(site / "torch-2.14.0.dist-info")
    found = environment.look(Path(asked["directory"]), asked["digest"])
    assert found["drift"] == ["torch: expected 2.13.0, found 2.14.0"]


@pytest.mark.parametrize("name", ["bin/vllm", "bin/python"])
def test_a_program_that_was_changed_is_noticed_and_mended(
    tmp_path: Path, file: Path, name: str
) -> None:
    place = built(tmp_path, file)
    asked = wanted(tmp_path, file)
    text = (place / name).read_text()
    (place / name).write_text(text.replace("exec", "echo"))
    found = environment.look(place, asked["digest"])
    assert found["drift"] == ["programs in bin: expected nothing, found others"]
    environment.build(asked, silent)
    assert (place / name).read_text() == text
    assert environment.look(place, asked["digest"])["complete"]
