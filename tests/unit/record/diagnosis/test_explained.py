"""Of the causes that a line may have, facts confirm one, exclude others, and fill in the fix."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.verify.preflight.conftest import cluster
from vllm_ansible.record.diagnosis import page
from vllm_ansible.record.diagnosis.evidence import Evidence
from vllm_ansible.record.diagnosis.explained import USUAL, explained
from vllm_ansible.record.diagnosis.facts import EVERYWHERE, Facts, of
from vllm_ansible.record.diagnosis.first import Finding
from vllm_ansible.record.diagnosis.verdict import diagnose
from vllm_ansible.verify.preflight.host_facts import facts as facts_of_look

PROFILING = (
    "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory"
    " 35.0 GiB. This happens when other processes sharing the same container release GPU memory"
)
# A line, facts of the host beside it; then what the cause, the excluded causes and the fix have in
# them, and what is said beside the first cause.
CASES: dict[str, dict[str, Any]] = {
    "devices that Ray does not count are seen in its status": {
        "log": "INFO Waiting for creating a placement group of specs for 150 seconds."
        " specs=[{'GPU': 1.0}, {'GPU': 1.0}]\n 0.0/1.0 GPU\n 0.0/1.0 TPU",
        "cause": "Ray counts 1 on the nodes that have joined",
        "fix": "--num-gpus",
    },
    "devices that Ray counts are held by others": {
        "log": "INFO Waiting for creating a placement group of specs for 150 seconds."
        " specs=[{'GPU': 1.0}, {'GPU': 1.0}]\n 2.0/2.0 GPU",
        "cause": "an older job holds them",
        "fix": "stop what holds the accelerators",
    },
    "an engine that slept and finds its memory taken": {
        "log": "INFO It took 0.4 seconds to fall asleep.\n"
        "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:56",
        "cause": "not free when a sleeping engine wakes up",
        "fix": "before it is woken",
    },
    "shapes that do not fit are of the feature in whose code they met": {
        "log": "Traceback (most recent call last):\n"
        '  File "/v/site-packages/vllm/v1/spec_decode/eagle.py", line 7, in f\n'
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x5120 and 7680x2560)",
        "cause": "Speculative decoding failed",
        "fix": "without speculative_config",
    },
    "shapes that do not fit are else a defect or another model's configuration": {
        "log": "Traceback (most recent call last):\n"
        '  File "/v/site-packages/vllm/model_executor/models/a.py", line 7, in f\n'
        "RuntimeError: The size of tensor a (64) must match the size of tensor b (128) at"
        " non-singleton dimension 2",
        "cause": "Code of vllm got tensors of shapes that do not fit",
        "fix": "one at a time",
    },
    "an old driver is one by its CUDA release": {
        "log": "torch==2.9.0+cu128\nRuntimeError: The NVIDIA driver on your system is too old"
        " (found version 12020). Please update your GPU driver",
        "cause": "supports CUDA 12.2, and the packages are built for CUDA 12.8",
        "fix": "Install driver 525.60.13 or later on gpu-1",
    },
    "a driver that is new enough is not called old": {
        "log": "torch==2.9.0+cu128\nRuntimeError: CUDA driver version is insufficient for CUDA"
        " runtime version",
        "facts": {"driver_cuda": "13.0", "driver": "580.95.05"},
        "cause": "An older libcuda than the driver's own is loaded",
        "excluded": "The driver of gpu-1 supports CUDA 13.0, which is enough for CUDA 12.8",
        "fix": "ldconfig -p",
    },
    "a driver that answers on the host is missing in the container alone": {
        "log": "RuntimeError: Found no NVIDIA driver on your system.",
        "facts": {"driver": "580.95.05", "devices": 8},
        "cause": "its container was started without the devices",
        "excluded": "Driver 580.95.05 of gpu-1 answers with 8 devices",
        "fix": "--gpus all",
    },
    "a host without a driver is said to have none": {
        "log": "RuntimeError: Found no NVIDIA driver on your system.",
        "facts": {"driver_error": "libnvidia-ml.so.1 is not installed", "devices": 0},
        "cause": "for the host has none",
        "excluded": "The host itself has no driver",
        "fix": "Install the driver on gpu-1",
    },
    "libraries of another CUDA release are told by both releases": {
        "log": "torch==2.9.0+cu130\nImportError: libcudart.so.12: cannot open shared object file",
        "cause": "built for CUDA 12, and torch with its libraries is built for CUDA 13.0",
        "fix": "for CUDA 13.0",
    },
    "a library of the same CUDA release is only not found": {
        "log": "torch==2.9.0+cu128\nImportError: libcudart.so.12: cannot open shared object file",
        "cause": "libcudart.so.12 is not where the package looks for it",
        "excluded": "The missing library is of CUDA 12, and so is torch (CUDA 12.8)",
        "fix": "from its lock",
    },
    "a package of the user's own directory is one by its path": {
        "log": '  File "/home/me/.local/lib/python3.12/site-packages/vllm/__init__.py", line 1\n'
        "ImportError: /home/me/.local/lib/python3.12/site-packages/vllm/_C.abi3.so: undefined"
        " symbol: _ZN3c104cuda9SetDeviceEab",
        "cause": "the user's own directory (~/.local)",
        "fix": "PYTHONNOUSERSITE=1",
    },
    "a model that is a path is not looked for on the hub": {
        "log": "OSError: /models/chat is not a local folder and is not a valid model identifier",
        "cause": "The model is not found at /models/chat",
        "excluded": "/models/chat is a path, for which no hub is asked",
        "fix": "ls -l /models/chat",
    },
    "a model that is a name is not looked for on a disk": {
        "log": "OSError: acme/chat is not a local folder and is not a valid model identifier",
        "cause": "The hub has no model acme/chat",
        "excluded": "acme/chat is a name on the hub, not a path",
        "fix": "Look acme/chat up on the hub",
    },
    "403 is for an account without access": {
        "log": "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://h/x",
        "cause": "has not accepted the gated model's terms",
        "excluded": "The hub answers 403",
        "fix": "Accept the model's terms",
    },
    "a host with nvcc needs its path": {
        "log": "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda'",
        "facts": {"nvcc": "/opt/cuda-13.0/bin/nvcc"},
        "cause": "The process does not find nvcc though the host has /opt/cuda-13.0/bin/nvcc",
        "excluded": "gpu-1 has /opt/cuda-13.0/bin/nvcc",
        "fix": "the directory above bin of /opt/cuda-13.0/bin/nvcc",
    },
    "a host without nvcc needs the toolkit": {
        "log": "torch==2.9.0+cu130\nRuntimeError: Could not find nvcc",
        "facts": {"nvcc": "none"},
        "cause": "gpu-1 has no CUDA compiler nvcc",
        "excluded": "No nvcc is found on gpu-1 at all",
        "fix": "Install the CUDA toolkit 13.0 on gpu-1",
    },
    "an interface that is not the data plane's is named beside it": {
        "log": "gpu-1:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\n"
        "gpu-1:1:2 [0] bootstrap.cc:11 NCCL WARN Bootstrap : no socket interface found",
        "facts": {"interface": "ens7", "interface_up": True},
        "cause": "NCCL_SOCKET_IFNAME is eth0, and the interface of the data plane on gpu-1 is ens7",
        "excluded": "ens7 of gpu-1 is up",
        "fix": "on gpu-1 to ens7",
    },
    "an address off the data plane is no firewall": {
        "log": "gpu-1:1:2 [0] misc/socket.cc:4 NCCL WARN socketStartConnect: Connect to"
        " 172.17.0.1<4021> failed : No route to host",
        "facts": {"interface": "ens7"},
        "everywhere": {"data_plane_addresses": ("10.0.0.1", "10.0.0.2"), "blocked_ports": 0},
        "cause": "172.17.0.1, which is no address of the data plane",
        "excluded": "No port between the hosts was blocked",
        "fix": "to ens7 on gpu-1",
    },
    "locked memory without limit is not too small": {
        "log": "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "facts": {"memlock": "unlimited"},
        "cause": "though the limit allows it",
        "excluded": "may lock memory without limit",
        "fix": "nvidia-peermem",
    },
    "a fabric that is not completed is named": {
        "log": "RuntimeError: CUDA error 802: system not yet initialized",
        "facts": {"fabric": "in progress", "driver": "580.95.05"},
        "cause": "The NVSwitch fabric of gpu-1 is in progress",
        "fix": "Install nvidia-fabricmanager 580.95.05 on gpu-1",
    },
    "a fabric that is completed is not accused": {
        "log": "RuntimeError: CUDA error 802: system not yet initialized",
        "facts": {"fabric": "completed"},
        "cause": "though the fabric is joined",
        "excluded": "Every device of gpu-1 reports the fabric as completed",
        "fix": "partition of this machine",
    },
    "no multicast of a bare machine is a matter of its fabric manager": {
        "log": "gpu-1:1:2 [0] transport/nvls.cc:9 NCCL WARN Cuda failure 401 'the operation'",
        "facts": {"virtual": False, "container": False},
        "cause": "the fabric manager failed, or was restarted",
        "excluded": "gpu-1 is neither a virtual machine nor a container",
        "fix": "NCCL_NVLS_ENABLE to 0",
    },
    "a GPU that is newer than its packages": {
        "log": "The current PyTorch install supports CUDA capabilities sm_70 sm_80 sm_90.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "facts": {"compute": "12.0", "gpu": "NVIDIA RTX PRO 6000"},
        "cause": "NVIDIA RTX PRO 6000 of compute capability 12.0; they end with 9.0",
        "excluded": "Compute capability 12.0 is above 9.0",
        "fix": "TORCH_CUDA_ARCH_LIST=12.0",
    },
    "a GPU that is older than its packages": {
        "log": "The current PyTorch install supports CUDA capabilities sm_75 sm_80 sm_90.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "facts": {"compute": "6.1"},
        "cause": "they begin with 7.5, so it is too old",
        "excluded": "Compute capability 6.1 is below 7.5",
        "fix": "that still has 6.1",
    },
    "a GPU that has the format is not called old": {
        "log": "ValueError: The quantization method fp8 is not supported for the current GPU."
        " Minimum capability: 89. Current capability: 90.",
        "cause": "The installed kernels have no code of this quantization",
        "excluded": "The GPU of gpu-1 has compute capability 9.0, the format needs 8.9",
        "fix": "another build",
    },
    "heads that do not divide are told with what divides": {
        "log": "ValueError: Total number of attention heads (52) must be divisible by tensor"
        " parallel size (3).",
        "cause": "The model's 52 attention heads are not divisible by the tensor parallel size 3",
        "fix": "out of 1, 2, 4, 13, 26, 52",
    },
    "a shard that is no whole number is told with sizes that are": {
        "log": "INFO x tensor_parallel_size=4, y\nValueError: Weight input_size_per_partition ="
        " 7392 is not divisible by min_thread_k = 128.",
        "cause": "At tensor parallel 4 a rank's part of a quantized weight is 7392",
        "fix": "one of 1",
    },
    "devices that the host has are hidden from the process": {
        "log": "RuntimeError: No CUDA GPUs are available",
        "facts": {"devices": 8},
        "cause": "The process sees none of the 8 GPUs of gpu-1",
        "excluded": "The driver of gpu-1 answers with 8 devices",
        "fix": "CUDA_VISIBLE_DEVICES",
    },
    "devices that the host has not are not hidden": {
        "log": "RuntimeError: No CUDA GPUs are available",
        "facts": {"devices": 0, "driver_error": "nvmlInit_v2: Unknown Error"},
        "cause": "The driver of gpu-1 shows no device: nvmlInit_v2: Unknown Error",
        "excluded": "The driver of gpu-1 has no device to show",
        "fix": "lspci",
    },
    "more ranks than devices are counted": {
        "log": "INFO x tensor_parallel_size=8, y\nRuntimeError: CUDA error: invalid device ordinal",
        "facts": {"devices": 4},
        "cause": "gpu-1 has 4 devices, and the layout wants 8",
        "excluded": "gpu-1 has only 4 devices",
        "fix": "Set tensor_parallel_size to 4 or less on gpu-1",
    },
    "a whole device by UUID is no slice": {
        "log": "ValueError: invalid literal for int() with base 10: 'GPU-5a1b2c3d'",
        "facts": {"mig": False},
        "cause": "names devices by UUID",
        "excluded": "MIG is off on every device of gpu-1",
        "fix": "numbers of `nvidia-smi -L`",
    },
    "an IOMMU that translates is the cause": {
        "log": "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "facts": {"iommu": "translates", "virtual": False},
        "cause": "the IOMMU translates",
        "excluded": "gpu-1 is no virtual machine",
        "fix": "Add iommu=pt to the kernel's command line of gpu-1",
    },
    "without an IOMMU it is ACS": {
        "log": "gpu-1:1:2 [0] NCCL INFO ncclCommInitRank comm 0x3 rank 0 nranks 2 - Init COMPLETE\n"
        "gpu-1:1:3 [1] NCCL INFO ncclCommInitRank comm 0x4 rank 1 nranks 2 - Init COMPLETE",
        "facts": {"iommu": "off", "virtual": False},
        "cause": "for PCIe ACS",
        "excluded": "The IOMMU of gpu-1 is off",
        "fix": "switch ACS off",
    },
    "unified memory moves without another process": {
        "log": "INFO Using device NVIDIA GB10\n" + PROFILING,
        "cause": "shares its memory with the host",
        "excluded": "With unified memory the free memory moves without another process",
        "fix": "drop the page cache",
    },
    "a host of GB10 is known by its compute capability": {
        "log": PROFILING,
        "facts": {"compute": "12.1"},
        "cause": "shares its memory with the host",
        "excluded": "With unified memory (GB10) the free memory moves",
        "fix": "drop the page cache",
    },
    "on XPU the same message comes without another process": {
        "log": "INFO 11-20 10:31:02 [__init__.py:241] Automatically detected platform xpu.\n"
        + PROFILING,
        "cause": "What this platform (XPU, ROCm) reports as free memory is not exact",
        "excluded": "On XPU and ROCm the same message comes without another process",
        "fix": "kv_cache_memory_bytes",
    },
    "memory of its own is changed by another process": {
        "log": PROFILING,
        "facts": {"gpu": "NVIDIA H100 80GB HBM3", "driver": "580.95.05"},
        "cause": "Another process took or released memory",
        "excluded": "NVIDIA H100 80GB HBM3 has memory of its own",
        "fix": "one after another",
    },
    "of unified memory the host itself uses a part": {
        "log": "INFO Using device NVIDIA GB10\nValueError: Free memory on device cuda:0 (60.1/119.6"
        " GiB) on startup is less than desired GPU memory utilization (0.9, 107.7 GiB).",
        "cause": "the host's own programs and its cache of files (page cache) count as used",
        "fix": "Lower gpu_memory_utilization",
    },
}


def told(case: dict[str, Any]) -> dict[str, Any]:
    facts: Facts = {
        **of("gpu-1", case.get("facts", {}), "preflight"),
        **of(EVERYWHERE, case.get("everywhere", {}), "reach"),
    }
    logs = {"gpu-1 chat-serve": case["log"]}
    return diagnose("It did not start", logs, {}, "serve", Evidence(facts))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_facts_choose_the_cause(case: dict[str, Any]) -> None:
    result = told(case)
    assert case["cause"] in result["cause"]
    assert case.get("excluded", "") in result.get("excluded", "")
    assert bool(case.get("excluded")) == ("excluded" in result), result
    assert case["fix"] in result["fix"]


@pytest.mark.parametrize(
    "case", [one for one in CASES.values() if "facts" in one], ids=lambda one: str(one["cause"])
)
def test_without_these_facts_nothing_is_excluded_by_them(case: dict[str, Any]) -> None:
    result = told({"log": case["log"]})
    assert "preflight" not in str(result)
    assert result["cause"]


def test_two_that_remain_are_said_in_order_with_what_tells_them_apart() -> None:
    result = told({"log": "RuntimeError: Found no NVIDIA driver on your system."})
    assert "container was started without the devices" in result["cause"]
    assert "the host has none" in result["otherwise"]
    assert "What distinguishes them: nvidia-smi on the host" in result["otherwise"]


def test_a_confirmed_cause_stands_alone_with_where_it_is_known_from() -> None:
    result = told(CASES["a driver that answers on the host is missing in the container alone"])
    assert "otherwise" not in result
    assert "(preflight)" in result["cause"]


def test_without_facts_another_process_is_still_the_usual_cause_of_changed_memory() -> None:
    result = told({"log": PROFILING})
    assert result["cause"].startswith(f"{USUAL}Another process took or released memory")
    assert "unified memory" in result["otherwise"]


def test_where_every_cause_is_excluded_none_is_said() -> None:
    log = "RuntimeError: NCCL does not work: MIG devices are not supported with two processes"
    result = told({"log": log, "facts": {"mig": False}})
    assert result["cause"].startswith("not known: the facts of the hosts exclude")
    assert result["excluded"] == (
        "The device is split by MIG; a process uses one slice, and slices cannot be joined by"
        " NCCL: MIG is off on every device of gpu-1 (preflight)"
    )


def test_another_hosts_driver_says_nothing_of_this_one() -> None:
    facts = of("gpu-2", {"driver": "580.95.05", "devices": 8}, "preflight")
    log = {"gpu-1 chat-serve": "RuntimeError: Found no NVIDIA driver on your system."}
    assert "excluded" not in diagnose("x", log, {}, "serve", Evidence(facts))


def test_what_an_engine_has_in_common_is_known_of_all_its_hosts() -> None:
    logs = {
        "gpu-1 chat-serve": "INFO torch==2.9.0+cu130",
        "gpu-2 chat-rank1": "ImportError: libcudart.so.12: cannot open shared object file",
    }
    assert "torch with its libraries is built for CUDA 13.0" in diagnose("x", logs, {})["cause"]


def test_a_rank_is_of_the_host_whose_address_ray_puts_before_its_line() -> None:
    facts: dict[str, Any] = {
        **of("gpu-1", {"address": "10.0.0.1", "devices": 8}, "preflight"),
        **of("gpu-2", {"address": "10.0.0.2", "devices": 0}, "preflight"),
    }
    line = "(RayWorker pid=9, ip=10.0.0.2) RuntimeError: No CUDA GPUs are available"
    result = diagnose("x", {"gpu-1 chat-serve": line}, {}, "serve", Evidence(facts))
    assert "The driver of this host shows no device" in result["cause"]


def test_the_look_of_the_preflight_becomes_facts() -> None:
    healthy = cluster()
    found = facts_of_look(healthy.looks["n1"], healthy.hosts["n1"])
    assert found["driver"] == "580.159.04"
    assert found["driver_cuda"] == "13.0"
    assert found["compute"] == "9.0"
    assert (found["fabric"], found["mig"], found["xid"]) == ("completed", False, ())
    assert (found["memlock"], found["nofile"]) == ("unlimited", 65536)
    assert found["nvcc"] == "/usr/local/cuda/bin/nvcc"
    assert found["active_cards"] == ("mlx5_0", "mlx5_1")
    assert (found["shm_gib"], found["disk_free_gib"]) == (1000.0, 500.0)
    assert (found["interface_up"], found["resolves_to_loopback"]) == (True, False)


def test_a_host_without_accelerators_has_no_facts_of_devices() -> None:
    healthy = cluster(kind="cpu")
    found = facts_of_look(healthy.looks["n1"], healthy.hosts["n1"])
    assert not {"driver", "devices", "fabric"} & set(found)


def test_a_finding_of_no_known_line_is_not_explained() -> None:
    assert explained(Finding("a", "x", 1, None), {}, {}) is None


def test_the_threads_of_others_are_shown() -> None:
    result = told({"log": "RuntimeError: Could not find nvcc"})
    assert result["seen"] == "Gym#1405, vllm#21960, flashinfer#1919"


def test_a_line_that_says_its_cause_itself_is_certain_and_gives_way_all_the_same() -> None:
    line = (
        "rpc_client.h:153: Failed to connect to GCS at address 10.0.0.1:20000 within 5 seconds.\n"
    )
    answer = told({"log": line})
    assert answer["cause"].startswith("This host cannot reach the Ray head's GCS")
    full = "OSError: [Errno 28] No space left on device\n"
    assert told({"log": line + full})["signature"] != answer["signature"]
    joined = (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2"
    )
    assert told({"log": f"{joined} clients joined."})["cause"].startswith(USUAL)


def test_what_is_known_of_a_later_line_says_where_it_is_not_certain() -> None:
    log = (
        "[2026-11-20 10:31:01 TP0] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
        "[2026-11-20 10:31:09 TP0] OSError: write error: No space left on device\n"
    )
    answer = page.explain({"gpu1 serve": log})
    assert not answer["cause"].startswith(USUAL)
    (other,) = answer["others"]
    assert other["cause"].startswith(USUAL)
    assert USUAL.strip() in page.page(answer)
