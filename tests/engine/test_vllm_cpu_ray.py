"""Upstream still needs each workaround of packages/vllm_cpu_ray, and each workaround works.

The first half runs vLLM's own code without the plugin and expects it to break. When one of those
fails, upstream has mended it: remove the workaround and its line in the package's README.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ports import free_port

Run = Callable[..., subprocess.CompletedProcess[str]]
# An allow list that allows nothing: vLLM as it is without our plugin.
STOCK = {"VLLM_PLUGINS": ""}

RAY_BUNDLES = """
from types import SimpleNamespace
from unittest import mock
from vllm.platforms import current_platform
from vllm.v1.executor import ray_utils
print("platform", type(current_platform).__name__)
node = {"NodeID": "n", "NodeManagerAddress": "10.0.0.1", "Alive": True}
group = SimpleNamespace(bundle_specs=[{"GPU": 1.0}, {"CPU": 1.0}])
context = SimpleNamespace(get_node_id=lambda: "n")
table = {"bundles_to_node_id": {0: "n"}}
with mock.patch.object(ray_utils, "placement_group_table", lambda _: table), \\
     mock.patch.object(ray_utils.ray, "nodes", lambda: [node]), \\
     mock.patch.object(ray_utils.ray, "get_runtime_context", lambda: context):
    print(ray_utils.get_bundles_sorted_by_node(group))
"""

# One of two ranks. Both say the same rendezvous port, as on real hosts; each has its own /dev/shm.
COMMUNICATOR = """
import os, sys
import torch
rank, port, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
os.environ["VLLM_DIST_IDENT"] = port
import vllm._custom_ops  # loads the C++ library that has the shared memory in it
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
if kind == "ours":
    from vllm_cpu_ray.communicator import HostAwareCpuCommunicator as CpuCommunicator
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
group = torch.distributed.group.WORLD
made = CpuCommunicator(group, torch.device("cpu"), group, "tp:0")
total = made.all_reduce(torch.full((4,), float(rank + 1)))
print("backend", type(made.dist_module).__name__, "sum", total.tolist()[0])
"""

# One of two data-parallel ranks, with one row and with three.
EXCHANGE = """
import sys
import torch
rank, port, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
if kind == "ours":
    from vllm_cpu_ray.communicator import HostAwareCpuCommunicator as CpuCommunicator
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
group = torch.distributed.group.WORLD
made = CpuCommunicator(group, torch.device("cpu"), group, "dp:0")
sizes = [1, 3]
own = torch.full((sizes[rank], 2), rank + 1.0, dtype=torch.bfloat16)
(rows,) = made.all_gatherv([own], dim=0, sizes=sizes)
mine = made.reduce_scatterv(rows, dim=0, sizes=sizes)
print("rows", rows[:, 1].tolist(), "mine", mine[:, 0].tolist())
"""

GENERATE = """
import sys
from vllm import LLM, SamplingParams

def main():
    engine = LLM(sys.argv[1], pipeline_parallel_size=int(sys.argv[2]), enforce_eager=True,
                 distributed_executor_backend="mp", max_model_len=128, max_num_seqs=2,
                 max_num_batched_tokens=128, kv_cache_memory_bytes=1 << 26, dtype="float32")
    wanted = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    print("tokens", list(engine.generate(["one node leads"], wanted)[0].outputs[0].token_ids))

if __name__ == "__main__":
    main()
"""


def test_stock_vllm_refuses_ray_on_cpus(run_engine_python: Run) -> None:
    result = run_engine_python(RAY_BUNDLES, environment=STOCK)
    assert "platform CpuPlatform" in result.stdout, result.stderr
    assert "current platform cpu does not support ray" in result.stderr


def test_the_plugin_is_the_platform_and_ray_is_welcome(run_engine_python: Run) -> None:
    result = run_engine_python(RAY_BUNDLES)
    assert "platform CpuRayPlatform" in result.stdout, result.stderr
    assert "[(0, 'n', '10.0.0.1')]" in result.stdout, result.stderr


LOGPROBS = """
import torch
from vllm.v1.sample.ops.logprobs import batched_count_greater_than
counted = batched_count_greater_than(torch.arange(6.0).view(2, 3), torch.ones(2, 1))
print("counted", counted.tolist())
"""
# As on a host where nobody has installed a compiler.
NO_COMPILER = {"CXX": "/nonexistent/g++", "CC": "/nonexistent/gcc"}


def test_stock_vllm_needs_a_compiler_for_log_probabilities(run_engine_python: Run) -> None:
    result = run_engine_python(LOGPROBS, environment={**STOCK, **NO_COMPILER})
    assert "counted" not in result.stdout
    assert "No working C++ compiler" in result.stderr


def test_the_plugin_counts_log_probabilities_without_a_compiler(run_engine_python: Run) -> None:
    result = run_engine_python(LOGPROBS, environment=NO_COMPILER)
    assert "counted [2, 3]" in result.stdout, result.stderr


def two_ranks(
    engine: Path, kind: str, separate: bool, program: str = COMMUNICATOR
) -> list[subprocess.CompletedProcess[str]]:
    """Run two ranks of a group; separate ones have their own /dev/shm and host name."""
    port = str(free_port())
    own = ["unshare", "--mount", "--uts", "sh", "-c"]
    if os.geteuid() != 0:
        own.insert(1, "--map-root-user")
    setup = 'mount -t tmpfs none /dev/shm && hostname "rank$1" && shift && exec "$@"'
    ranks = []
    for rank in (0, 1):
        command = [str(engine / "bin/python"), "-c", program, str(rank), port, kind]
        if separate:
            command = [*own, setup, "sh", str(rank), *command]
        ranks.append(
            subprocess.Popen(
                command,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    done = []
    try:
        for process in ranks:
            output, error = process.communicate(timeout=120)
            done.append(
                subprocess.CompletedProcess(process.args, process.returncode, output, error)
            )
    finally:
        for process in ranks:
            process.kill()
    return done


@pytest.fixture
def shared_memory() -> None:
    """Skip where vLLM has no collectives in shared memory: its build for AVX2 is without them."""
    if platform.machine() == "x86_64" and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("collectives in shared memory need AVX-512, which this processor lacks")


@pytest.mark.usefixtures("shared_memory")
def test_stock_vllm_takes_shared_memory_between_hosts(engine: Path) -> None:
    done = two_ranks(engine, "stock", separate=True)
    said = "".join(rank.stdout + rank.stderr for rank in done)
    assert "open shm in SHMManager failed" in said


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize(("separate", "backend"), [(True, "module"), (False, "_CPUSHMDistributed")])
def test_the_plugin_takes_shared_memory_within_a_host_alone(
    engine: Path, separate: bool, backend: str
) -> None:
    for rank in two_ranks(engine, "ours", separate):
        assert f"backend {backend} sum 3.0" in rank.stdout, rank.stderr


def test_stock_vllm_has_no_exchange_between_data_ranks(engine: Path) -> None:
    for rank in two_ranks(engine, "stock", separate=False, program=EXCHANGE):
        assert "NotImplementedError" in rank.stderr


def test_the_plugin_exchanges_rows_between_data_ranks(engine: Path) -> None:
    first, second = two_ranks(engine, "ours", separate=False, program=EXCHANGE)
    assert "rows [1.0, 2.0, 2.0, 2.0] mine [2.0]" in first.stdout, first.stderr
    assert "rows [1.0, 2.0, 2.0, 2.0] mine [4.0, 4.0, 4.0]" in second.stdout, second.stderr


@pytest.mark.engine
@pytest.mark.soak
def test_stock_vllm_dies_on_the_first_request_of_an_eager_pipeline(
    run_engine_python: Run, models_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    result = generate(run_engine_python, models_dir("llama"), 2, tmp_path, STOCK)
    assert result.returncode != 0
    assert "assert self.intermediate_tensors is not None" in result.stdout + result.stderr


@pytest.mark.engine
def test_an_eager_pipeline_answers_as_one_process_does(
    run_engine_python: Run, models_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    answers = []
    for stages in (1, 2):
        result = generate(run_engine_python, models_dir("llama"), stages, tmp_path, {})
        found = re.search(r"^tokens (\[.*\])$", result.stdout, re.MULTILINE)
        assert found, result.stderr[-2000:]
        answers.append(found[1])
    assert answers[0] == answers[1]


def generate(
    run: Run, model: Path, stages: int, directory: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Let a real engine without a server write eight tokens."""
    script = directory / "generate.py"  # spawned workers import it again
    script.write_text(GENERATE)
    command = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    return run(command, str(script), str(model), str(stages), environment=variables)


def test_vllm_asks_for_a_distribution_of_its_own_name(run_engine_python: Run) -> None:
    without_the_name = """
import importlib.metadata as metadata, sys
original = metadata.version
def version(name):
    if name == "vllm":
        raise metadata.PackageNotFoundError(name)
    return original(name)
metadata.version = version
sys.argv = ["vllm", "--version"]
from vllm.entrypoints.cli.main import main
main()
"""
    result = run_engine_python(without_the_name)
    assert "PackageNotFoundError" in result.stderr


def test_vllm_tells_its_version(engine: Path) -> None:
    result = subprocess.run(
        [engine / "bin/vllm", "--version"], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip().endswith("+cpu"), result.stderr


def test_vllm_lies_where_the_readme_points(engine: Path) -> None:
    """The lines that README.md names are still the ones it means."""
    root = next((engine / "lib").glob("python3.*/site-packages/vllm"))
    for path, line, holds in (
        ("platforms/interface.py", 150, "ray_device_key"),
        ("platforms/interface.py", 172, 'simple_compile_backend: str = "inductor"'),
        ("v1/sample/ops/logprobs.py", 10, "simple_compile_backend"),
        ("v1/executor/ray_utils.py", 417, "if not ray_device_key"),
        ("distributed/device_communicators/cpu_communicator.py", 71, "_all_group_ranks_share"),
        (
            "distributed/device_communicators/base_device_communicator.py",
            296,
            "NotImplementedError",
        ),
        ("distributed/device_communicators/all2all.py", 148, "all_gatherv"),
        ("v1/worker/cpu_worker.py", 190, "_should_warm_up_model"),
        ("v1/worker/gpu_model_runner.py", 3174, "self.intermediate_tensors is not None"),
        ("entrypoints/cli/main.py", 99, 'version("vllm")'),
    ):
        text = (root / path).read_text().splitlines()[line - 1]
        assert holds in text, f"{path}:{line}"
