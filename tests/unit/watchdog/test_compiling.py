"""Compilers of real processes: those of the engine's own records, and no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from vllm_ansible.node import launcher
from vllm_ansible.node.watchdog.compiling import compilers, compiles


def test_only_compilers_that_the_named_records_started_are_found(tmp_path: Path) -> None:
    sleep = shutil.which("sleep") or "/bin/sleep"
    for command in ("cicc", "python"):
        (tmp_path / command).symlink_to(sleep)
    marks = {
        "r1-ray": f"{tmp_path}/processes/r1-ray.json",
        "r2-serve": f"{tmp_path}/processes/r2-serve.json",
        "another cluster's": "/elsewhere/processes/r1-ray.json",
    }
    started = {
        (name, command): subprocess.Popen(
            [tmp_path / command, "600"], env={**os.environ, launcher.MARKER: mark}
        )
        for name, mark in marks.items()
        for command in ("cicc", "python")
    }
    try:
        # A child carries its parent's name until it has executed its program.
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not compilers(str(tmp_path), ["r1-ray"]):
            time.sleep(0.05)
        (found,) = compilers(str(tmp_path), ["r1-ray", "r1-serve"])
        assert (found.pid, found.command) == (started["r1-ray", "cicc"].pid, "cicc")
    finally:
        for one in started.values():
            one.kill()
            one.wait()


def test_the_programs_that_engines_compile_with_are_known() -> None:
    known = "nvcc cicc ptxas cudafe++ fatbinary nvlink cc1plus g++ gcc-12 c++ clang++ ninja as ld"
    assert [one for one in known.split() if not compiles(one)] == []
    assert not any(compiles(one) for one in ("python3", "VLLM::EngineCor", "raylet", "assemble"))
