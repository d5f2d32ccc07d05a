"""What a bundle is made of: the same each time, from where it was interrupted, in parts."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from vllm_ansible.bundle import command
from vllm_ansible.bundle.wheels import Locked, Target, Wheelhouse, best, locked
from vllm_ansible.problem import PlanError

from .conftest import Project, wheel

HERE = Target("3.11", "x86_64")


def test_the_same_bundle_twice_is_byte_equal_and_the_second_fetches_nothing(
    project: Project,
) -> None:
    first = project.directory / "mine.tar"
    shutil.rmtree(project.index)
    for path in project.root.rglob("*"):
        path.touch()
    (second,) = project.make("b.tar")
    assert first.read_bytes() == second.read_bytes()


def test_parts_are_of_the_given_size_and_make_up_the_whole(project: Project) -> None:
    whole = project.directory / "mine.tar"
    stale = project.directory / "b.tar.099"
    stale.touch()
    parts = project.make("b.tar", part_size="4K")
    assert [part.name for part in parts[:2]] == ["b.tar.000", "b.tar.001"]
    assert {part.stat().st_size for part in parts[:-1]} == {4000}
    assert b"".join(part.read_bytes() for part in parts) == whole.read_bytes()
    assert not stale.exists(), "cat b.tar* would take it for the last part"


def test_what_tells_whether_all_came_comes_first(project: Project) -> None:
    with tarfile.open(project.directory / "mine.tar") as archive:
        names = archive.getnames()
        assert archive.getmember("mine/start").mode == 0o755
    assert names[:3] == ["mine/SHA256SUMS", "mine/start", "mine/manifest.json"]
    assert "mine/project/inventories/mine/hosts.yml" in names
    assert "mine/wheels/hosts/four-1.0-py3-none-any.whl" in names
    assert "mine/wheels/controller/two-1.0-py3-none-any.whl" in names


def test_a_wheel_that_was_cut_off_is_fetched_anew(project: Project) -> None:
    first = project.directory / "mine.tar"
    cached = project.directory / "cache/four-1.0-py3-none-any.whl"
    cached.write_bytes(cached.read_bytes()[:40])
    (second,) = project.make("b.tar")
    assert first.read_bytes() == second.read_bytes()


def test_a_wheel_with_another_hash_than_the_lock_is_refused(project: Project) -> None:
    project.lock("engine-cpu", f"four==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PlanError, match="pip cannot fetch the locked wheels"):
        project.make("b.tar")
    assert not (project.directory / "b.tar").exists()


def test_hosts_whose_engine_nobody_can_know_are_refused(project: Project) -> None:
    hosts = project.root / "inventories/mine/hosts.yml"
    hosts.write_text(hosts.read_text().replace("accelerator: cpu", "accelerator: auto"))
    with pytest.raises(PlanError, match="does not say which engine"):
        project.make()


def test_a_python_that_the_lock_does_not_serve_is_refused_before_anything_is_fetched(
    project: Project,
) -> None:
    hosts = project.root / "inventories/mine/hosts.yml"
    old, new = "accelerator: cpu", 'accelerator: cpu, engine_python: "3.12"'
    hosts.write_text(hosts.read_text().replace(old, new))
    with pytest.raises(PlanError, match=r"engine-cpu\.txt does not serve Python 3\.12"):
        project.make()


def test_the_verb_refuses_an_inventory_that_is_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["-i", str(tmp_path), "--to", str(tmp_path / "a.tar")]) == command.REFUSED
    assert "is not an inventory of this project" in capsys.readouterr().err


def test_a_host_gets_the_wheel_that_fits_it_best(tmp_path: Path) -> None:
    tags = ("py3-none-any", "cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-linux_x86_64")
    hashes = {tag: wheel(tmp_path, "one", tag) for tag in tags}
    files = [path.name for path in tmp_path.iterdir()]
    one = Locked("one", "1.0", frozenset(hashes.values()))
    taken = [
        best(one, files, Target(*target.split())) for target in ("3.11 x86_64", "3.11 aarch64")
    ]
    assert taken == [f"one-1.0-{tags[1]}.whl", f"one-1.0-{tags[0]}.whl"]
    assert best(one, files, Target("3.12", "x86_64")) == f"one-1.0-{tags[2]}.whl"
    said: list[str] = []
    assert Wheelhouse(tmp_path, said.append).bring([one], HERE, "it") == {
        f"one-1.0-{tags[1]}.whl": hashes[tags[1]]
    }
    assert said == []


@pytest.mark.parametrize(
    ("marker", "applies"),
    [
        ("python_full_version < '3.12'", True),
        ("python_full_version < '3.11.3'", True),
        ("python_full_version >= '3.12'", False),
        ("sys_platform == 'win32'", False),
        ("platform_machine == 'aarch64'", False),
    ],
)
def test_a_line_of_a_lock_is_judged_for_the_other_side(marker: str, applies: bool) -> None:
    lines = f"a[x]==1 ; {marker} \\\n    --hash=sha256:00\n    # via b\n"
    assert [one.line() for one in locked(lines, HERE)] == ["a==1 --hash=sha256:00\n"] * applies
