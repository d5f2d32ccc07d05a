"""A tar is loaded, checked and proven by the real podman; what is wrong is said before."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.failure import Failure
from vllm_ansible.node.image import archive as tar
from vllm_ansible.node.image import install
from vllm_ansible.node.image.tool import Tool, find

from .conftest import Report, containers_tool


def test_an_image_is_loaded_and_proven(
    wanted: dict[str, Any],
    tool: Tool,
    report: Report,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tar, "STEP", 1)
    place = Path(wanted["directory"])
    assert not install.look(place, wanted["digest"], tool)["complete"]
    manifest = install.bring(wanted, tool, report)
    assert manifest["versions"]["vllm"] == "0.32.0"
    assert manifest["image"]["id"] == manifest["image"]["base"]
    assert "reading what the tar holds" in told
    assert f"{tool.kind} loads the image" in told or "checking the image's checksum" in told
    assert install.look(place, wanted["digest"], tool)["complete"]
    # Its Python answers on the host, and hands on what it was given.
    asked = (
        "import os, sys, vllm; print(vllm.__version__, os.environ['GREETING'], sys.stdin.read())"
    )
    said = subprocess.run(
        [place / "bin/python", "-c", asked],
        input="and in",
        env={**os.environ, "GREETING": "hello you"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split("\n")[0] == "0.32.0 hello you and in"


def test_an_image_is_loaded_anew_only_where_it_was_removed(
    wanted: dict[str, Any], tool: Tool, report: Report, told: list[str]
) -> None:
    manifest = install.bring(wanted, tool, report)
    # What is made of the same tar, such as with other packages of ours, loads nothing; also where
    # its tar has gone since.
    told.clear()
    other = f"{wanted['directory']}-other"
    again = install.bring({**wanted, "file": "gone.tar", "directory": other}, tool, report)
    assert again["fingerprint"] == manifest["fingerprint"]
    assert not [text for text in told if "load" in text or "checksum" in text]
    containers_tool("rmi", "--force", manifest["image"]["id"])
    assert not install.look(Path(wanted["directory"]), wanted["digest"], tool)["complete"]
    assert install.present(wanted, tool) is None
    assert install.bring(wanted, tool, report)["fingerprint"] == manifest["fingerprint"]


@pytest.mark.parametrize(
    ("right", "expected"),
    [(False, "its checksum differs"), (True, "holds no image that can be loaded")],
)
def test_a_tar_that_is_cut_off_is_refused_before_it_is_loaded(
    right: bool,
    expected: str,
    wanted: dict[str, Any],
    archive: Path,
    tool: Tool,
    report: Report,
    tmp_path: Path,
) -> None:
    whole = Path(wanted["file"]).read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: len(whole) // 2])
    wanted["file"] = str(cut)
    if right:
        wanted["sha256"] = sha256(cut.read_bytes()).hexdigest()
    # By its id: other tests beside this one load images of their own.
    image = tar.told(str(archive), lambda done: None)["id"]
    containers_tool("rmi", "--force", image, check=False)
    with pytest.raises(Failure, match=expected) as refused:
        install.bring(wanted, tool, report)
    assert refused.value.details["where"] == str(cut)
    assert tool.image(image) is None


def test_a_tar_that_does_not_fit_is_refused_with_figures(
    wanted: dict[str, Any], tool: Tool, report: Report, tmp_path: Path
) -> None:
    large = tmp_path / "large.tar"
    with large.open("wb") as handle:
        handle.truncate(1 << 43)
    wanted["file"] = str(large)
    with pytest.raises(Failure, match=r"GiB free, and it takes about 9011.2 GiB"):
        install.bring(wanted, tool, report)


def test_packages_are_layered_in_once(
    wanted: dict[str, Any], tool: Tool, report: Report, told: list[str]
) -> None:
    plain = install.bring(wanted, tool, report)
    wanted["packages"] = ["extra==1.2"]
    manifest = install.bring(wanted, tool, report)
    derived = manifest["image"]["id"]
    assert derived != manifest["image"]["base"] == plain["image"]["id"]
    assert manifest["distributions"]["extra"] == "1.2"
    assert manifest["fingerprint"] != plain["fingerprint"]
    told.clear()
    assert install.bring(wanted, tool, report)["image"]["id"] == derived
    assert "layering packages in" not in told
    wanted["packages"] = ["missing==1.0"]
    with pytest.raises(Failure, match=r"No matching distribution found for missing==1\.0"):
        install.bring(wanted, tool, report)
    containers_tool("rmi", "--force", derived)


def test_an_engine_that_does_not_import_is_named(
    wanted: dict[str, Any], tool: Tool, report: Report
) -> None:
    wanted["own"] = []
    with pytest.raises(Failure, match="does not import inside the image") as refused:
        install.bring(wanted, tool, report)
    assert "vllm_guard" in refused.value.details["found"]
    assert not (Path(wanted["directory"]) / "manifest.json").exists()


def test_a_host_without_a_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="this host has no podman and no docker"):
        find("auto", {"PATH": str(tmp_path)})
    with pytest.raises(Failure, match="this host has no docker"):
        find("docker", {"PATH": str(tmp_path)})


def test_a_tool_that_does_not_work_is_named(tmp_path: Path) -> None:
    script = tmp_path / "docker"
    script.write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(Failure, match="docker does not work here: Cannot connect"):
        Tool("docker", str(script), dict(os.environ)).storage()
