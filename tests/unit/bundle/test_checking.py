"""A bundle that is damaged, incomplete or of another project is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.bundle import check, hosts, start

from .conftest import Project

WHEEL = "wheels/hosts/four-1.0-py3-none-any.whl"
ENGINES: dict[str, Any] = {"engines": [{"name": "chat", "model": "random:llama"}]}


@pytest.fixture
def bundle(project: Project) -> Path:
    return unpacked(project, project.directory / "mine.tar")


def unpacked(project: Project, file: Path) -> Path:
    with tarfile.open(file) as archive:
        # Python 3.11.2, Debian 12's, has no filters yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(project.directory)  # noqa: S202  the bundle was made here
    return project.directory / "mine"


def sentences(project: Project, bundle: Path, **variables: Any) -> list[str]:
    found = check.problems(str(bundle), project.root, {**ENGINES, **variables})
    return [problem.sentence() for problem in found]


def started(bundle: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(bundle / "start"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(project: Project, bundle: Path, words: str) -> None:
    """Refused by what starts and by what every playbook begins with, in one sentence."""
    (sentence,) = sentences(project, bundle)
    assert words in sentence
    ran = started(bundle)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert words in ran.stderr
    assert not (bundle / "project/.venv").exists()


def test_a_whole_bundle_passes_and_is_not_read_again_until_it_changes(
    project: Project, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sentences(project, bundle) == []
    read: list[str] = []
    real = start.digest_of
    monkeypatch.setattr(start, "digest_of", lambda path: read.append(path.name) or real(path))
    assert sentences(project, bundle) == []
    assert read == []
    content = (bundle / WHEEL).read_bytes()
    (bundle / WHEEL).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert len(sentences(project, bundle)) == 1
    assert read == [Path(WHEEL).name]


def test_a_damaged_bundle(project: Project, bundle: Path) -> None:
    content = bytearray((bundle / WHEEL).read_bytes())
    content[20] ^= 1
    (bundle / WHEEL).write_bytes(content)
    refused(project, bundle, f"the bundle is damaged: {WHEEL} in {bundle} does not have the SHA")


def test_a_bundle_whose_list_is_cut_off(project: Project, bundle: Path) -> None:
    text = (bundle / start.SUMS).read_text()
    (bundle / start.SUMS).write_text(text[:30])
    refused(project, bundle, "SHA256SUMS is cut off")


def test_an_incomplete_bundle(project: Project, bundle: Path) -> None:
    (bundle / WHEEL).unlink()
    refused(project, bundle, f"the bundle is incomplete: {WHEEL} not found")


def test_a_bundle_whose_last_part_never_came(project: Project) -> None:
    # Between two files of a tar nothing would tell tar that more was to come.
    content = (project.directory / "mine.tar").read_bytes()
    with tarfile.open(project.directory / "mine.tar") as archive:
        members = archive.getmembers()
    cut = members[len(members) // 2].offset_data + 1
    tar = subprocess.Popen(
        ["tar", "-x", "-C", str(project.directory)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    tar.communicate(content[:cut])
    assert tar.returncode != 0, "so that `&&` does not go on"
    refused(project, project.directory / "mine", "the bundle is incomplete")


def test_no_bundle_at_all(project: Project, tmp_path: Path) -> None:
    (sentence,) = sentences(project, tmp_path / "nowhere")
    assert "is not a bundle" in sentence


def test_a_bundle_of_another_lock_is_outdated(project: Project, bundle: Path) -> None:
    lock = project.root / "requirements/engine-cpu.txt"
    lock.write_text(lock.read_text() + "# later\n")
    (sentence,) = sentences(project, bundle)
    assert (
        "the bundle is outdated: it was made from another requirements/engine-cpu.txt" in sentence
    )
    lock.unlink()
    assert sentences(project, bundle) == [sentence]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"engine_python": "3.12"}, "has an engine for Python 3.11, not 3.12"),
        ({"engines": [{"name": "a", "model": "org/name"}]}, "the weights of a (org/name)"),
        ({"engines": [{"name": "a", "model": "s3://b/c"}]}, "the weights of a (s3://b/c)"),
        ({"engines": [{"name": "a", "model": "package:smollm2-135m-instruct"}]}, "or none"),
    ],
)
def test_what_the_inventory_needs_beyond_it_is_named(
    project: Project, bundle: Path, variables: dict[str, Any], words: str
) -> None:
    (sentence,) = sentences(project, bundle, **variables)
    assert words in sentence


def test_a_mirror_of_the_hub_or_a_store_of_the_site_brings_weights(
    project: Project, bundle: Path
) -> None:
    engines = [{"name": "a", "model": "org/name"}, {"name": "b", "model": "/a/directory"}]
    mirror = {"HF_ENDPOINT": "https://hub.example"}
    assert sentences(project, bundle, engines=engines, sources_environment=mirror) == []
    assert "HF_HUB_OFFLINE" not in hosts.environment(mirror, "/b")
    assert hosts.environment({}, "/b")["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize(
    ("host", "variables", "missed"),
    [
        ({}, {"UV_OFFLINE": "1"}, []),
        ({"architecture": "aarch64"}, {"UV_OFFLINE": "1"}, ["--architecture aarch64"]),
        ({"python": "3.12.3"}, {"UV_OFFLINE": "1"}, ["--python 3.12"]),
        ({"accelerator": "nvidia"}, {"UV_OFFLINE": "1"}, ["--lock engine-cuda"]),
        ({}, {}, ["put sources_environment into the inventory"]),
    ],
)
def test_a_host_that_the_bundle_was_not_made_for_is_named(
    bundle: Path, host: dict[str, str], variables: dict[str, str], missed: list[str]
) -> None:
    found = {"name": "one", "architecture": "x86_64", "python": "3.11.2", "accelerator": "cpu"}
    found |= {"driver_version": "", **host}
    manifest = json.loads((bundle / start.MANIFEST).read_text())
    judged = hosts.measurements(found, [found], manifest, variables, given=False)
    fixes = [one["fix"] for one in judged if not one["ok"]]
    assert len(fixes) == len(missed)
    assert all(words in fix for words, fix in zip(missed, fixes, strict=True))


def key(directory: Path, name: str) -> Path:
    path = directory / name
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True
    )
    (directory / f"{name}.signers").write_text(
        f"{start.NAMESPACE} {path.with_suffix('.pub').read_text()}"
    )
    return path


def test_a_signature_is_asked_for_where_signers_are_given(
    project: Project, bundle: Path, tmp_path: Path
) -> None:
    ours, other = key(tmp_path, "ours"), key(tmp_path, "other")
    signers = f"{ours}.signers"
    with pytest.raises(start.BundleError, match="not signed: no"):
        start.verify_signature(bundle, signers)
    (first,) = project.make("a.tar", key=str(ours))
    (second,) = project.make("b.tar", key=str(ours))
    assert first.read_bytes() == second.read_bytes()
    start.verify_signature(unpacked(project, first), signers)
    ran = started(bundle, "--signers", f"{other}.signers")
    assert ran.returncode == 2
    assert "not signed by anyone whom" in ran.stderr
    # Who changes a file and its hash does not have the key.
    sums = bundle / start.SUMS
    sums.write_text(sums.read_text().replace("0", "1", 1))
    with pytest.raises(start.BundleError, match="not signed by anyone"):
        start.verify_signature(bundle, signers)


def test_a_controller_of_another_python_is_told_which(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 7))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(start.BundleError, match=r"for Python 3\.11, and this is 3\.7"):
        start.install(bundle)
