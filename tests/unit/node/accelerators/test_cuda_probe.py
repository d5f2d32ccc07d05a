"""The probe against a CUDA driver made for the test, in C: what its answers become."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
MIB = 1 << 20


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a libcuda.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine to make the emulated driver with")
    library = tmp_path_factory.mktemp("emulator") / "libcuda.so.1"
    source = ROOT / "tests/emulators/cuda_driver.c"
    argv = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*argv, str(source)], check=True)
    return library.parent


def run(
    library: Path | None, *arguments: str, python: str = sys.executable, **settings: Any
) -> tuple[int, dict[str, Any], str]:
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "PATH": os.environ["PATH"],
        **{f"EMULATED_{name.upper()}": str(value) for name, value in settings.items()},
    }
    if library is not None:
        environment["LD_LIBRARY_PATH"] = str(library)
    argv = [
        python,
        "-m",
        "vllm_ansible.node.accelerators.cuda_probe",
        "--bytes",
        str(64 * MIB),
        # On a busy machine the default of 5 s ends before all is measured.
        *("--seconds", "600"),
        *arguments,
    ]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def left(log: Path) -> list[str]:
    """Return what was made and not freed, or freed and not made."""
    lines = log.read_text().split()
    made = Counter(line[1:] for line in lines if line[0] == "+")
    made.subtract(line[1:] for line in lines if line[0] == "-")
    return [name for name, count in made.items() if count]


def test_all_is_measured_and_freed(emulator: Path, node_python: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    rc, found, _ = run(emulator, python=node_python, log=log, devices=2)
    assert rc == 0
    assert found["cuda"] == "12.4"
    assert left(log) == []
    first, second = found["devices"]
    assert (first["name"], first["pci"]) == ("Emulated 0", "0000:a0:00.0")
    assert second["uuid"] == "GPU-02020202-0202-0202-0202-020202020202"
    assert first["memory"] == {
        "bytes": 64 * MIB,
        "passes": 8,
        "wrong_words": 0,
        "first_wrong_byte": None,
        "wrong_bits": "0x00000000",
        "planted_bit_found": True,
    }
    # Everything takes the emulated driver 50 ms: 64 MiB are 1.34 GB/s, a copy is read and write.
    assert first["bandwidth"] == {
        "bytes": 64 * MIB,
        "read_gb_per_s": 1.3,
        "copy_gb_per_s": 1.3,
        "exact": True,
    }
    assert first["host_link"]["to_device_gb_per_s"] == 1.3
    assert first["host_link"]["exact"] and first["host_link"]["alone"]
    assert first["matmul_fp32"]["size"] == first["matmul_bf16"]["size"] == 2048
    assert first["matmul_fp32"]["tflops"] == round(2 * 2048**3 / 0.05 / 1e12, 2)
    assert "error" not in first and "stage" not in first
    pairs = [(one["source"], one["target"], one["direct"]) for one in found["peers"]["pairs"]]
    assert pairs == [(0, 1, True), (1, 0, True)]
    assert not any(one["wrong_words"] for one in found["peers"]["pairs"])


def test_one_device_has_no_peers(emulator: Path) -> None:
    _, found, _ = run(emulator, "--device", "1", "--seconds", "0.001", devices=2)
    assert [one["index"] for one in found["devices"]] == [1]
    assert "peers" not in found


def test_what_there_was_no_time_for_is_said(emulator: Path) -> None:
    _, found, _ = run(emulator, "--seconds", "0.001")
    (device,) = found["devices"]
    assert device["memory"]["passes"] == 2
    assert device["matmul_fp32"] == {"skipped": "0.001 seconds were over"}
    assert device["host_link"]["exact"]


def test_a_bit_that_stays_is_found(emulator: Path) -> None:
    _, found, _ = run(emulator, "--seconds", "0.001", stuck=7)
    memory = found["devices"][0]["memory"]
    assert memory["wrong_words"] >= 1
    assert memory["first_wrong_byte"] == 4 * 4321
    assert memory["wrong_bits"] == "0x00000080"


def test_tensor_cores_of_old_devices_are_left_out(emulator: Path) -> None:
    _, found, _ = run(emulator, major=7)
    assert found["devices"][0]["matmul_bf16"] == {"skipped": "needs compute capability 8.0"}


@pytest.mark.parametrize(
    ("call", "stage", "words"),
    [
        ("cuDevicePrimaryCtxRetain:1", "start", "opening device 0"),
        ("cuEventCreate:2", "start", "cuEventCreate"),
        ("cuMemAlloc_v2:1", "start", f"allocating {64 * MIB} bytes on device 0"),
        ("cuModuleLoadData:1", "start", "compiling for device 0"),
        ("cuModuleGetFunction:2", "start", "cuModuleGetFunction"),
        ("cuLaunchKernel:3", "memory", "cuLaunchKernel"),
        ("cuEventSynchronize:2", "matmul_fp32", "waiting for the device"),
        ("cuMemcpyDtoDAsync_v2:1", "bandwidth", "cuMemcpyDtoDAsync_v2"),
        ("cuMemAllocHost_v2:2", "host_link", f"pinning {64 * MIB} bytes of host memory"),
    ],
)
def test_what_failed_is_said_and_all_is_freed(
    emulator: Path, tmp_path: Path, call: str, stage: str, words: str
) -> None:
    log = tmp_path / "log"
    rc, found, _ = run(emulator, fail=call, log=log)
    (device,) = found["devices"]
    assert rc == 0
    assert device["stage"] == stage
    assert words in device["error"]
    assert device["error"].endswith("CUDA_ERROR_OUT_OF_MEMORY, out of memory")
    assert not log.exists() or left(log) == []


def test_a_device_that_fails_for_good_still_has_what_was_measured_before(emulator: Path) -> None:
    _, found, _ = run(emulator, fail="cuEventSynchronize:2", code=214)
    (device,) = found["devices"]
    assert device["memory"]["wrong_words"] == 0
    assert "health" in device
    assert "CUDA_ERROR_ECC_UNCORRECTABLE" in device["error"]


def test_memory_that_others_hold_is_named(emulator: Path) -> None:
    _, found, _ = run(emulator, free_mib=32)
    assert f"only {32 * MIB} bytes of device 0 are free" in found["devices"][0]["error"]


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        ([], {"fail": "cuInit:1"}, "starting the driver (cuInit): CUDA_ERROR_OUT_OF_MEMORY"),
        ([], {"devices": 0}, "the driver shows 0 devices, not device any"),
        (["--device", "9"], {}, "the driver shows 1 devices, not device 9"),
    ],
)
def test_why_nothing_was_measured_is_said(
    emulator: Path, arguments: list[str], settings: dict[str, Any], said: str
) -> None:
    rc, found, error = run(emulator, *arguments, **settings)
    assert (rc, found) == (1, {})
    assert error.startswith("Nothing was measured: ") and said in error


def test_an_absent_driver_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("no library")
    rc, _, error = run(tmp_path)
    assert rc == 1
    assert error.startswith("Nothing was measured: the CUDA driver cannot be loaded (")
    assert error.count("\n") == 1
