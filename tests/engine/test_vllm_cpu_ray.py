"""Upstream still needs each workaround of packages/vllm_cpu_ray, and each workaround works.

The first half runs vLLM's own code without the plugin and expects it to break. When one of those
fails, upstream has mended it: remove the workaround and its line in the package's README.
"""

from __future__ import annotations

import json
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

# One process for all questions: what takes long is the import of vLLM. The last one leaves vLLM
# without a version.
QUESTIONS = """
import traceback
from types import SimpleNamespace
from unittest import mock
from vllm.platforms import current_platform
from vllm.v1.executor import ray_utils
print("platform", type(current_platform).__name__)
node = {"NodeID": "n", "NodeManagerAddress": "10.0.0.1", "Alive": True}
group = SimpleNamespace(bundle_specs=[{"GPU": 1.0}, {"CPU": 1.0}])
context = SimpleNamespace(get_node_id=lambda: "n")
table = {"bundles_to_node_id": {0: "n"}}
try:
    with mock.patch.object(ray_utils, "placement_group_table", lambda _: table), \\
         mock.patch.object(ray_utils.ray, "nodes", lambda: [node]), \\
         mock.patch.object(ray_utils.ray, "get_runtime_context", lambda: context):
        print("bundles", ray_utils.get_bundles_sorted_by_node(group))
except Exception:
    traceback.print_exc()

import torch
from vllm.v1.sample.ops.logprobs import batched_count_greater_than
try:
    counted = batched_count_greater_than(torch.arange(6.0).view(2, 3), torch.ones(2, 1))
    print("counted", counted.tolist())
except Exception:
    traceback.print_exc()

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

# Two ranks each time, forked from one process that has imported vLLM, which takes longer than all
# they do. Both say the same rendezvous port, as on real hosts; those that are apart have a /dev/shm
# and a host name of their own.
RANKS = """
import ctypes, json, os, signal, socket, sys, traceback
import torch
import vllm._custom_ops  # loads the C++ library that has the shared memory in it
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

def call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "a name space of its own")

def part(number):
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    mounts, names, users = 0x20000, 0x4000000, 0x10000000 if user else 0
    call(libc.unshare, mounts | names | users)
    if user:
        maps = {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    private = 0x4000 | 0x40000
    call(libc.mount, b"none", b"/", None, private, None)
    call(libc.mount, b"none", b"/dev/shm", b"tmpfs", 0, None)
    socket.sethostname(f"rank{number}")

def joined(number, port, kind, of):
    made = CpuCommunicator
    if kind == "ours":
        from vllm_cpu_ray.communicator import HostAwareCpuCommunicator as made
    os.environ["VLLM_DIST_IDENT"] = port
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
    group = torch.distributed.group.WORLD
    return made(group, torch.device("cpu"), group, of)

def summed(number, port, kind):
    made = joined(number, port, kind, "tp:0")
    total = made.all_reduce(torch.full((4,), float(number + 1)))
    print("backend", type(made.dist_module).__name__, "sum", total.tolist()[0])

def exchanged(number, port, kind):
    # With one row and with three.
    made, sizes = joined(number, port, kind, "dp:0"), [1, 3]
    own = torch.full((sizes[number], 2), number + 1.0, dtype=torch.bfloat16)
    (rows,) = made.all_gatherv([own], dim=0, sizes=sizes)
    mine = made.reduce_scatterv(rows, dim=0, sizes=sizes)
    print("rows", rows[:, 1].tolist(), "mine", mine[:, 0].tolist())

for name, port, apart, kind, what in json.loads(sys.argv[1]):
    ranks = []
    for number in (0, 1):
        pid = os.fork()
        if pid:
            ranks.append(pid)
            continue
        signal.alarm(400)
        file = os.open(f"{sys.argv[2]}/{name}-{number}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        try:
            if apart:
                part(number)
            globals()[what](number, port, kind)
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    for pid in ranks:
        os.waitpid(pid, 0)
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


# As on a host where nobody has installed a compiler.
NO_COMPILER = {"CXX": "/nonexistent/g++", "CC": "/nonexistent/gcc"}
Said = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def stock(run_engine_python: Run) -> Said:
    return run_engine_python(QUESTIONS, environment={**STOCK, **NO_COMPILER})


@pytest.fixture(scope="module")
def ours(run_engine_python: Run) -> Said:
    return run_engine_python(QUESTIONS, environment=NO_COMPILER)


def test_stock_vllm_refuses_ray_on_cpus(stock: Said) -> None:
    assert "platform CpuPlatform" in stock.stdout, stock.stderr
    assert "current platform cpu does not support ray" in stock.stderr


def test_the_plugin_is_the_platform_and_ray_is_welcome(ours: Said) -> None:
    assert "platform CpuRayPlatform" in ours.stdout, ours.stderr
    assert "bundles [(0, 'n', '10.0.0.1')]" in ours.stdout, ours.stderr


def test_stock_vllm_needs_a_compiler_for_log_probabilities(stock: Said) -> None:
    assert "counted" not in stock.stdout
    assert "No working C++ compiler" in stock.stderr


def test_the_plugin_counts_log_probabilities_without_a_compiler(ours: Said) -> None:
    assert "counted [2, 3]" in ours.stdout, ours.stderr


def test_vllm_asks_for_a_distribution_of_its_own_name(ours: Said) -> None:
    assert "PackageNotFoundError" in ours.stderr


@pytest.fixture(scope="module")
def ranks(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Return what both ranks of a group have said, by its name."""
    directory = tmp_path_factory.mktemp("ranks")
    groups = [
        ("stock-apart", str(free_port()), True, "stock", "summed"),
        ("ours-apart", str(free_port()), True, "ours", "summed"),
        ("ours-together", str(free_port()), False, "ours", "summed"),
        ("stock-exchange", str(free_port()), False, "stock", "exchanged"),
        ("ours-exchange", str(free_port()), False, "ours", "exchanged"),
    ]
    done = subprocess.run(
        [engine / "bin/python", "-c", RANKS, json.dumps(groups), directory],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return lambda name: [(directory / f"{name}-{number}").read_text() for number in (0, 1)]


@pytest.fixture
def shared_memory() -> None:
    """Skip where vLLM has no collectives in shared memory: its build for AVX2 is without them."""
    if platform.machine() == "x86_64" and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("collectives in shared memory need AVX-512, which this processor lacks")


Ranks = Callable[[str], list[str]]


@pytest.mark.usefixtures("shared_memory")
def test_stock_vllm_takes_shared_memory_between_hosts(ranks: Ranks) -> None:
    assert "open shm in SHMManager failed" in "".join(ranks("stock-apart"))


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize(
    ("name", "backend"), [("ours-apart", "module"), ("ours-together", "_CPUSHMDistributed")]
)
def test_the_plugin_takes_shared_memory_within_a_host_alone(
    ranks: Ranks, name: str, backend: str
) -> None:
    for said in ranks(name):
        assert f"backend {backend} sum 3.0" in said, said


def test_stock_vllm_has_no_exchange_between_data_ranks(ranks: Ranks) -> None:
    for said in ranks("stock-exchange"):
        assert "NotImplementedError" in said


def test_the_plugin_exchanges_rows_between_data_ranks(ranks: Ranks) -> None:
    first, second = ranks("ours-exchange")
    assert "rows [1.0, 2.0, 2.0, 2.0] mine [2.0]" in first, first
    assert "rows [1.0, 2.0, 2.0, 2.0] mine [4.0, 4.0, 4.0]" in second, second


@pytest.mark.engine
@pytest.mark.soak
def test_stock_vllm_dies_on_the_first_request_of_an_eager_pipeline(
    run_engine_python: Run, models_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    result = generate(run_engine_python, models_dir("llama"), 2, tmp_path, STOCK)
    assert result.returncode != 0
    assert "assert self.intermediate_tensors is not None" in result.stdout + result.stderr


# In every run an eager pipeline of tests/flows/test_two_hosts.py says what one process says.
@pytest.mark.engine
@pytest.mark.soak
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
