"""A reason is read however the program words it, and its values are said."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.record.diagnosis import lines, log_facts
from vllm_ansible.record.diagnosis.cuda_errors import in_plain_words
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.match import match
from vllm_ansible.record.diagnosis.verdict import diagnose

ALLOCATION = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.63 GiB (GPU 0; 44.56 GiB "
    "total capacity; {} already allocated; 565.31 MiB free; {} reserved in total by PyTorch)"
)
SHAPES = (
    "AssertionError: Attempted to load weight (torch.Size([{}])) into parameter (torch.Size([{}]))"
)
BUS_ERROR = "gpu7: Signal: Bus error (7)\n"


def of(*texts: str) -> dict[str, Any]:
    return diagnose("It did not start", {"gpu1 serve": "\n".join(texts)}, {})


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("n1: Test CUDA failure common.cu:892 'invalid device ordinal'", "invalid device ordinal"),
        ("NCCL WARN Cuda failure 700 'an illegal memory access was encountered'", "an illegal"),
        ("Failed: Cuda error /w/custom_all_reduce.cuh:164 'out of memory'", "out of memory"),
        ("RuntimeError: CUDA Error: out of memory at /w/cumem_allocator.cpp:62", "out of memory"),
        ("cuda runtime error (101) : at THCGeneral.cpp:50", "invalid device ordinal"),
    ],
)
def test_an_error_of_cuda_is_known_by_its_number_or_text(line: str, plain: str) -> None:
    assert in_plain_words(line).startswith(f"CUDA error: {plain}")


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: out of memory",
        "the engine ran out of memory, without any error of the device",
        "Error 802: system not yet initialized",
        "cuda error 4711",
    ],
)
def test_nothing_is_added_to_what_is_plain_or_no_error_of_cuda(line: str) -> None:
    assert in_plain_words(line) == ""


def test_memory_that_others_hold_is_counted_from_the_message_of_torch() -> None:
    others = of(ALLOCATION.format("27.91 GiB", "27.93 GiB"))
    assert others["cause"].startswith("Other processes hold 16.1 GiB")
    alone = of(ALLOCATION.format("43.40 GiB", "43.50 GiB"))
    assert "Other processes" not in alone["cause"]


def test_two_shapes_tell_whether_a_weight_was_not_split() -> None:
    split = of(SHAPES.format("1, 1, 2, 8", "1, 1, 1, 8"))
    assert "2 times as large as its place" in split["cause"]
    for other in (("4, 8", "2, 4"), ("8, 4", "8, 4, 1"), ("6, 4", "4, 4")):
        assert log_facts.values(SHAPES.format(*other)).get("weight_ratio") == 0


def test_an_option_that_needs_another_is_named_with_it() -> None:
    result = of("TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser")
    assert "--enable-auto-tool-choice needs --tool-call-parser" in result["cause"]
    assert "Set --tool-call-parser" in result["fix"]


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("layers.0.mlp.down_proj.weight.absmax", "bitsandbytes"),
        ("layers.0.attention.wk.weight", "model's maker"),
        ("layers.0.mlp.experts.w2_weight", "experts"),
        ("layers.0.self_attn.qkv_proj.weight_scale", "scales of a quantization"),
    ],
)
def test_the_name_of_a_weight_tells_the_form_of_a_checkpoint(weight: str, said: str) -> None:
    result = of(f"KeyError: '{weight}'")
    assert said in result["cause"]
    assert weight in result["cause"]
    assert not result["cause"].startswith(USUAL)


def test_a_form_that_no_name_proves_is_not_said() -> None:
    result = of("KeyError: 'model.layers.0.mlp.strange_proj.weight'")
    assert result["cause"].startswith(USUAL)
    assert "otherwise" not in result


def test_a_bus_error_is_of_weights_where_the_log_loads_them_from_a_network_file_system() -> None:
    loading = "[TRT-LLM] [I] Loading /lustre/models/a/model-00417-of-01433.safetensors\n"
    result = of(loading, BUS_ERROR)
    assert "network file system" in result["cause"]
    assert "64 MB of shared memory" in str(result["excluded"])
    alone = of(BUS_ERROR)
    assert alone["cause"].startswith(USUAL)
    assert "64 MB of shared memory" in alone["cause"]
    assert "mapped into memory" in alone["otherwise"]


def test_versions_of_the_fabric_manager_are_said_as_it_says_them() -> None:
    result = of(
        "Feb 24 09:28:28 n1 nv-fabricmanager[1507]: fabric manager NVIDIA GPU driver interface "
        "version 535.183.01 don't match with driver version 535.183.06. Please update",
    )
    assert "535.183.01 does not start" in result["cause"]
    assert "nvidia-fabricmanager 535.183.06" in result["fix"]


def test_a_warning_of_torch_that_cuda_does_not_start_counts() -> None:
    warning = "torch/cuda/__init__.py:129: UserWarning: {} Error 802: system not yet initialized"
    counts = of(warning.format("CUDA initialization: Unexpected error from cudaGetDeviceCount()."))
    assert counts["signature"] == "cuda-802-fabric"
    assert "signature" not in of(warning.format("Something else, unlike"))


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("[TensorRT-LLM][WARNING] Parameter max_draft_len cannot be read from json:", "WARNING"),
        ("[05/15/2024-21:14:21] [TRT-LLM] [I] Load tokenizer takes: 0.08 sec", "INFO"),
        ("[TRT-LLM] [E] Failed to load the engine", "ERROR"),
    ],
)
def test_levels_of_tensorrt_llm_are_read(line: str, level: str) -> None:
    assert lines.read(line).level == level


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ("job-preempted", "slurmstepd: error: *** JOB 8 ON n CANCELLED AT t DUE TO PREEMPTION ***"),
        (
            "slurm-node-failed",
            "slurmstepd: error: *** JOB 8 ON n CANCELLED AT t DUE TO NODE FAILURE",
        ),
        ("slurm-spool-gone", "slurmstepd: error: execve(): /s/job1/slurm_script: No such file"),
        ("container-device-unknown", "nvidia-container-cli: device error: 4: unknown device"),
        (
            "container-cli-refused",
            "nvidia-container-cli: initialization error: nvml error: insufficient permissions",
        ),
        ("nats-payload", "nats: error: nats: maximum payload exceeded"),
    ],
)
def test_a_reason_within_a_family_is_not_taken_for_its_usual_one(known: str, line: str) -> None:
    assert of(line)["signature"] == known


def test_what_is_inferred_from_a_line_is_not_said_as_certain() -> None:
    result = of("Failed to initialize NVML: Unknown Error")
    assert result["cause"].startswith(USUAL)
    assert "no-cgroups" in result["otherwise"]


def test_a_directory_without_a_configuration_is_named_and_a_name_on_the_hub_is_not() -> None:
    words = "does not appear to have a file named config.json. Checkout 'https://huggingface.co/"
    there = of(f"OSError: /data/ft/chat-sft {words}/data/ft/chat-sft/tree/main'")
    assert there["cause"].startswith("/data/ft/chat-sft has no config.json")
    assert there["fix"].startswith("Run `ls /data/ft/chat-sft` on gpu1")
    hub = of(f"OSError: acme/chat {words}acme/chat/tree/main'")
    assert "has no config.json" not in hub["cause"]


def test_files_that_are_missing_after_the_kernel_killed_a_process_are_no_cause() -> None:
    missing = "LocalEntryNotFoundError: Cannot find the requested files in the disk cache"
    killed = "kernel: Memory cgroup out of memory: Killed process 2213 (rclone) total-vm:1893020kB"
    assert of(missing)["signature"] == "hub-offline"
    assert of(missing, killed)["signature"] == "host-oom-kill"


def test_the_name_of_an_actor_of_ray_may_hold_colons() -> None:
    line = lines.read("(ServeReplica:default:VLLMDeployment pid=1328933) ValueError: no such model")
    assert line.writer == "ServeReplica:default:VLLMDeployment"
    assert line.text == "ValueError: no such model"


def test_what_ansible_says_of_its_own_connection_is_no_launcher() -> None:
    refused = "ssh: connect to host 10.0.0.9 port 22: Connection refused"
    known = match(f"Failed to connect to the host via ssh: {refused}")
    assert known is None or known.id != "launcher-ssh"
    known = match(refused)
    assert known is not None and known.id == "launcher-ssh"
