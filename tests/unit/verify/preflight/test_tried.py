"""What is tried rather than read: limits of a started process, and writes as their user."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import forked, launcher
from vllm_ansible.node.preflight import limits
from vllm_ansible.node.system import writing


def test_a_write_that_succeeds_leaves_nothing(tmp_path: Path) -> None:
    assert writing.tried(str(tmp_path), None) == {"user": ""}
    assert list(tmp_path.iterdir()) == []


def test_a_write_is_tried_as_the_one_who_will(
    nobodys: Path, tmp_path: Path, as_nobody: Callable[..., Any]
) -> None:
    refused = as_nobody(lambda: writing.tried("/", None))
    assert refused["step"] == "create" and "Permission denied" in refused["error"]
    assert as_nobody(lambda: writing.tried(str(nobodys), None)) == {"user": ""}
    if os.geteuid() == 0:
        assert writing.tried(str(nobodys), "nobody") == {"user": "nobody"}
        assert writing.tried(str(tmp_path), "nobody")["step"] == "create"
        unknown = writing.tried(str(nobodys), "nobody-at-all")
        assert unknown["step"] == "become the user" and "not found" in unknown["error"]


def test_each_step_of_a_write_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError(37, "No locks available")

    for module, name, step in (
        ("fcntl.flock", "flock", "flock"),
        ("os.fsync", "fsync", "fsync"),
        ("os.rename", "rename", "rename"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, fails)
            found = writing.tried(str(tmp_path), None)
        assert (found["step"], "No locks" in found["error"]) == (step, True), name
        assert list(tmp_path.iterdir()) == []


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            20000                20000                files
Max locked memory         8388608              unlimited            bytes
Max address space         unlimited            unlimited            bytes
"""


def test_limits_are_those_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, LIMITS, ""

    found = limits.under_systemd("demo", {"memlock": "infinity", "nofile": "65536"}, run)
    assert found == {"of": "a service of systemd", "memlock": 8388608, "nofile": 20000}
    assert (
        "--unit=vllm-demo-preflight" in asked[0] and "--property=LimitMEMLOCK=infinity" in asked[0]
    )
    failed = limits.under_systemd("demo", {}, lambda _: (1, "", "no bus\n"))
    assert failed == {"error": "systemd-run: no bus"}


def test_limits_of_a_login_are_what_our_launcher_reaches() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    found = limits.under_supervisord(None, {"nofile": "256"})
    assert (found["nofile"], found["of"].partition(",")[0]) == (256, "this login")
    # Nothing of this process itself has changed.
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard


@pytest.mark.parametrize(
    ("soft", "hard", "own", "gets"),
    [
        pytest.param(1024, 4096, None, 4096, id="the soft limit of an ordinary login"),
        pytest.param(1024, 8192, None, 5000, id="more than is asked for"),
        pytest.param(512, 512, None, 512, id="less than this login may have"),
        pytest.param(1024, 4096, 600, 4096, id="more than this login may have"),
        pytest.param(1024, 8192, 600, 5000, id="more than this login may have, and is asked for"),
    ],
)
def test_limits_of_a_running_supervisord_are_those_that_its_launchers_reach(
    as_nobody: Any, soft: int, hard: int, own: int | None, gets: int
) -> None:
    """Its own soft limit holds for itself alone: our launcher takes the hard one."""
    nofile = resource.RLIMIT_NOFILE

    def launched(tell: Any) -> None:
        resource.setrlimit(nofile, (soft, hard))
        launcher.set_limits({"nofile": "5000"})
        tell("nofile", resource.getrlimit(nofile)[0])

    def measure() -> Any:
        (reached,) = forked.run_each([launched], 120.0, Exception)
        with subprocess.Popen(
            ["sleep", "600"], preexec_fn=lambda: resource.setrlimit(nofile, (soft, hard))
        ) as daemon:
            if own:
                resource.setrlimit(nofile, (own, own))
            found = limits.under_supervisord(daemon.pid, {"nofile": "5000"})
            daemon.kill()
        return reached["nofile"], found

    reached, found = as_nobody(measure)
    assert found.get("nofile") == gets == reached, found
    assert "supervisord, process" in found["of"]


def test_only_a_living_supervisord_counts(tmp_path: Path) -> None:
    assert limits.daemon_of(str(tmp_path)) is None
    (tmp_path / "supervisord.pid").write_text(f"{os.getpid()}\n")
    assert limits.daemon_of(str(tmp_path)) == os.getpid()
    (tmp_path / "supervisord.pid").write_text("4194305\n")
    assert limits.daemon_of(str(tmp_path)) is None
