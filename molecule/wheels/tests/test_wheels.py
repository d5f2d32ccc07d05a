"""One host has compiled the package; both have the same wheel, which belongs to root."""

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest
from testinfra.host import Host

CACHE = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]).joinpath(
    "state/lab", os.environ.get("MOLECULE_LAB", "molecule"), "wheels"
)


@pytest.fixture
def wheel(host: Host, cluster_dir: str) -> str:
    (path,) = host.check_output(f"ls {cluster_dir}/wheels/*/*.whl").split()
    return path


def test_the_controller_keeps_what_was_compiled_for_these_hosts(host: Host, wheel: str) -> None:
    (record,) = (json.loads(path.read_text()) for path in CACHE.glob("*/wheel.json"))
    (kept,) = CACHE.glob("*/*.whl")
    assert kept.name == record["file"] == Path(wheel).name
    names = zipfile.ZipFile(kept).namelist()
    machine = host.check_output("uname -m")
    assert [name for name in names if name.endswith(f"cpython-311-{machine}-linux-gnu.so")]
    assert record["architecture"] == machine
    digest = hashlib.sha256(kept.read_bytes()).hexdigest()
    assert digest == record["sha256"] == host.file(wheel).sha256sum


def test_only_one_host_has_built(host: Host, cluster_dir: str, name: str) -> None:
    assert host.file(f"{cluster_dir}/tasks/wheels.json").exists is (name == "lab1")


def test_nothing_of_the_build_is_left(host: Host, cluster_dir: str, wheel: str, name: str) -> None:
    key = Path(wheel).parent.name
    log = [f"{key}.log"] if name == "lab1" else []
    assert host.check_output(f"ls {cluster_dir}/wheels").split() == [key, *log]
    assert not host.process.filter(comm="uv")


def test_the_service_cannot_change_what_will_be_installed(host: Host, wheel: str) -> None:
    for path in (str(Path(wheel).parent), wheel):
        found = host.file(path)
        assert (found.user, found.mode & 0o022) == ("root", 0), path
