"""The kernels are PTX that NVIDIA's assembler takes, and their arithmetic is exact."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node.accelerators.cuda_kernels import PATTERN
from vllm_ansible.node.accelerators.cuda_matmul import (
    FP32,
    K_PERIOD,
    LEFT,
    RIGHT,
    element,
    product_table,
)
from vllm_ansible.node.accelerators.cuda_measure import SIZES
from vllm_ansible.node.accelerators.cuda_tensor import BF16


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ["PATTERN", "FP32", "BF16"])
def test_the_assembler_takes_every_kernel(name: str, architecture: str, tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas on this machine to assemble PTX with")
    source = tmp_path / "kernel.ptx"
    source.write_text({"PATTERN": PATTERN, "FP32": FP32, "BF16": BF16}[name])
    argv = [ptxas, "-v", "-arch", architecture, str(source), "-o", str(tmp_path / "kernel")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What is spilled to memory would be measured instead of the cores.
    assert " 0 bytes spill stores" in done.stderr


@pytest.mark.parametrize("n", SIZES)
def test_the_table_has_every_element_of_a_product_exactly(n: int) -> None:
    values = struct.unpack(f"<{LEFT['period'] * RIGHT['period']}f", product_table(n))
    for row, column in ((0, 0), (60, 58), (61, 59), (n - 1, 130)):
        wanted = sum(element(LEFT, row, k) * element(RIGHT, column, k) for k in range(n))
        place = row % LEFT["period"] * RIGHT["period"] + column % RIGHT["period"]
        assert values[place] == wanted
    # No partial sum can be beyond what an fp32 holds exactly, in whatever order it is made.
    for matrix in (LEFT, RIGHT):
        found = {element(matrix, line, k) for line in range(61) for k in range(K_PERIOD)}
        assert (min(found), max(found)) == (-8, 7)
    assert 8 * 8 * n < 1 << 24


def test_tiles_of_a_product_differ() -> None:
    values = struct.unpack("<3599f", product_table(64))

    def at(row: int, column: int) -> float:
        return float(values[row % 61 * 59 + column % 59])

    tiles = {
        tuple(at(row + i, column + j) for i in range(2) for j in range(8))
        for row in range(0, 4096, 128)
        for column in range(0, 4096, 128)
    }
    assert len(tiles) == 32 * 32
