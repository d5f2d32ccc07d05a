"""What one host has packed, others take, as an archive and as an image."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import image_mount

from ...fake_uv import wanted_with
from ..packs import Host, can_mount, unmounted

__all__ = ["unmounted"]
FORMS = ("copy", "image")


@pytest.fixture(params=FORMS)
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    if request.param == "image" and not can_mount(tmp_path):
        pytest.skip("neither this kernel nor squashfuse mounts an image here")
    return Host(wanted_with(tmp_path, monkeypatch), request.param)


def builds(host: Host) -> int:
    return Path(host.asked["environment"]["FAKE_LOG"]).read_text().count("pip sync")


def test_what_the_first_has_packed_every_other_one_takes_and_proves(host: Host) -> None:
    assert host.run("present")
    built = host.look()
    assert built["complete"] and built["shared"] and not host.run("present")
    host.become_another()
    assert host.look()["shared"] and not host.look()["built"]
    assert host.run("proven") and not host.run("proven")
    taken = host.look()
    assert taken["complete"] and taken["manifest"] == built["manifest"]
    assert image_mount.is_mounted(host.place) == (host.wanted["form"] == "image")
    assert (host.place / "lib/python3.11/site-packages/vllm/a.py").read_text() == "a = 1\n"
    # All in an image is root's, for all who mount it.
    owner = 0 if host.wanted["form"] == "image" else os.geteuid()
    assert (host.place / "bin/python").stat().st_uid == owner
    # Whoever comes first now builds nothing either.
    host.become_another()
    assert host.run("present") and builds(host) == 1


def test_a_host_takes_nothing_that_does_not_import_there(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run("present")
    host.become_another()

    def lacking(*_: Any) -> dict[str, str]:
        raise BuildError("the engine does not import")

    with monkeypatch.context() as patched:
        patched.setattr(environment, "check_imports", lacking)
        with pytest.raises(BuildError, match="does not import"):
            host.run("proven")
    assert not host.look()["complete"]
    assert host.run("proven") and host.look()["complete"]


def test_what_was_changed_by_hand_is_noticed_and_taken_anew(host: Host) -> None:
    host.run("present")
    host.become_another()
    host.run("proven")
    if host.wanted["form"] == "image":
        with pytest.raises(OSError, match="Read-only"):
            (host.place / "bin/python").unlink()
        return
    site = host.place / "lib/python3.11/site-packages"
    (site / "ray-2.60.0.dist-info").rename(site / "ray-2.61.0.dist-info")
    assert host.look()["drift"] == ["ray: expected 2.60.0, found 2.61.0"]
    assert host.run("proven") and host.look()["complete"]
    assert sorted(path.name for path in host.place.parent.iterdir()) == [
        host.place.name,
        f"{host.place.name}.proof",
    ]


def test_one_that_was_given_and_has_changed_is_packed_anew(host: Host, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "bin").mkdir(parents=True)
    (given / "site").mkdir()
    scripts = {name: f"{name}:main" for name in ("vllm", "ray")}
    told = {"sites": [str(given / "site")], "scripts": scripts, "version": [3, 11]}
    (given / "bin/python").write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
    (given / "bin/python").chmod(0o755)
    host.asked["given"] = str(given)
    assert host.run("present") and not host.run("present")
    host.become_another()
    assert host.run("proven")
    # Its owner installs something; the host that has a copy or an image is now the first one.
    (given / "site/torch-2.14.0.dist-info").mkdir()
    assert host.look()["drift"] == ["torch: expected nothing, found 2.14.0"]
    assert host.run("present") and host.look()["complete"] and not host.run("present")
    packed = json.loads(Path(host.wanted["record"]).read_text())["fingerprint"]
    assert packed == host.look()["manifest"]["fingerprint"]
    host.become_another()
    assert host.run("proven") and host.look()["complete"]


def test_a_pack_that_is_not_whole_counts_as_none(host: Host) -> None:
    host.run("present")
    host.become_another()
    (pack,) = host.packs()
    with pack.open("ab") as file:
        file.write(b"more")
    assert not host.look()["shared"]
    with pytest.raises(BuildError, match="finds no packed environment"):
        host.run("proven")
    assert not host.place.exists()
    before = (pack.stat().st_ino, pack.read_bytes())
    # The first one makes it anew, and leaves that one to whoever has it mounted.
    assert host.run("present") and host.look()["shared"] and builds(host) == 2
    assert (pack.stat().st_ino, pack.read_bytes()) == before
    assert json.loads(Path(host.wanted["record"]).read_text())["file"] != pack.name


def test_what_its_record_does_not_say_is_refused(host: Host) -> None:
    host.run("present")
    host.become_another()
    record = Path(host.wanted["record"])
    record.write_text(json.dumps({**json.loads(record.read_text()), "fingerprint": "other"}))
    with pytest.raises(BuildError, match="not what its record says"):
        host.run("proven")
    assert not host.look()["complete"]


def test_a_run_that_was_interrupted_is_taken_up(host: Host) -> None:
    host.run("present")
    host.become_another()
    for left in (host.place, host.place.with_name(f".{host.place.name}.partial")):
        (left / "lib").mkdir(parents=True)
        (left / "half").touch()
    assert host.run("proven") and host.look()["complete"]
    assert not (host.place / "half").exists()
    # Whoever packs is interrupted before the record: there is no pack, and the next run makes one.
    Path(host.wanted["record"]).unlink()
    host.packs()[0].with_name(".left").touch()
    assert not host.look()["shared"]
    assert host.run("present") and host.look()["shared"] and builds(host) == 1


def test_another_path_or_another_python_is_refused_by_name(host: Host, tmp_path: Path) -> None:
    host.run("present")
    host.asked["cluster_dir"] = str(tmp_path / "elsewhere")
    with pytest.raises(BuildError, match="finds no packed environment") as error:
        host.run("proven")
    assert error.value.details["found"].startswith(f"one for {tmp_path}/cluster/environments/")
    host.asked["cluster_dir"] = str(tmp_path / "cluster")
    host.become_another()
    record = Path(host.wanted["record"])
    for interpreter, said in (("/gone/python", "no such file"), ("/bin/python3", "3.")):
        lines = {**json.loads(record.read_text()), "interpreter": interpreter, "python": "3.1.4"}
        record.write_text(json.dumps(lines))
        with pytest.raises(BuildError, match="a Python that this host has not") as error:
            host.run("proven")
        assert error.value.details["expected"] == f"{interpreter}, Python 3.1.4"
        assert error.value.details["found"].startswith(said)
    assert not host.place.exists()


def test_an_interpreter_of_the_clusters_own_goes_with_it(host: Host) -> None:
    own = Path(host.wanted["cluster_dir"]) / "python"
    newest = own / "cpython-3.11.9/bin/python3.11"
    newest.parent.mkdir(parents=True)
    shutil.move(host.asked["environment"]["FAKE_PYTHON"], newest)
    (own / "cpython-3.11").symlink_to(own / "cpython-3.11.9")
    uv = Path(host.asked["uv"])
    # As uv does: a link to the release, which leads to its newest patch.
    uv.write_text(uv.read_text().replace("cp ", "ln -s "))
    host.asked["environment"]["FAKE_PYTHON"] = str(own / "cpython-3.11/bin/python3.11")
    host.run("present")
    assert json.loads(Path(host.wanted["record"]).read_text())["interpreter"] == ""
    host.become_another()
    shutil.rmtree(own)
    assert host.run("proven") and host.look()["complete"]
    assert newest.exists() and (host.place / "bin/python").resolve() == newest.resolve()
