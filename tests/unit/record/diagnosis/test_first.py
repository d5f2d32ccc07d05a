"""Over many logs, the line is found in which the failure began."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.record.diagnosis import lines
from vllm_ansible.record.diagnosis.first import Finding, first_failure, last_words
from vllm_ansible.record.diagnosis.match import Signature, signatures

DATA = Path(__file__).parent / "data"
HEALTHY = (DATA / "healthy-vllm-cpu.log").read_text()
TRUNCATED = (DATA / "truncated-shard.log").read_text()


def found(logs: dict[str, str]) -> Finding:
    finding = first_failure(logs)
    assert finding
    return finding


def test_a_healthy_log_holds_no_failure() -> None:
    assert first_failure({"a": HEALTHY}) is None


def test_no_logs_hold_no_failure() -> None:
    assert first_failure({}) is None
    assert first_failure({"a": ""}) is None


def test_a_real_engine_that_read_a_truncated_shard_is_explained_by_its_worker() -> None:
    finding = found({"a serve": HEALTHY, "b serve": TRUNCATED})
    assert finding.rank == "b serve"
    assert finding.writer == "Worker"
    assert finding.line.endswith("incomplete metadata, file not fully covered")
    assert finding.signature
    assert finding.signature.id == "corrupt-safetensors"


def test_a_compiler_off_the_path_is_no_fault_of_the_compile_cache() -> None:
    """Two H100, 25 November 2026: DeepGEMM of FlashInfer looks for nvcc on the PATH alone."""
    finding = found({"a serve": (DATA / "nvcc-off-path.log").read_text()})
    assert finding.line == "sh: 1: nvcc: not found"
    assert finding.signature
    assert finding.signature.id == "nvcc-missing"


def test_the_earlier_rank_is_the_cause_whatever_order_the_logs_come_in() -> None:
    late = "ERROR 11-20 10:41:02 [x.py:1] ValueError: consequence"
    early = "ERROR 11-20 10:31:02 [x.py:1] ValueError: reason"
    assert found({"a": late, "b": early}).line == "ValueError: reason"
    assert found({"b": early, "a": late}).line == "ValueError: reason"


def test_a_known_consequence_does_not_hide_an_unknown_reason_long_before_it() -> None:
    logs = {
        "a": "ERROR 11-20 10:41:02 [x.py:1] client socket has timed out after 600000ms while"
        " trying to connect to (10.0.0.1, 29500)",
        "b": "ERROR 11-20 10:31:02 [x.py:1] ValueError: something nobody has met",
    }
    assert found(logs).line == "ValueError: something nobody has met"


def test_a_known_reason_in_the_same_seconds_says_more_than_an_unknown_line() -> None:
    log = (
        "ERROR 11-20 10:31:02 [x.py:1] RuntimeError: something went wrong\n"
        "NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Cannot allocate memory\n"
    )
    finding = found({"a": log})
    assert finding.signature
    assert finding.signature.id == "nccl-memlock"
    assert finding.number == 2


def test_what_only_follows_comes_after_the_cause_even_when_it_is_earlier() -> None:
    logs = {
        "a": "ERROR 11-20 10:31:00 [core.py:1] RuntimeError: Engine core initialization failed."
        " See root cause above. Failed core proc(s): {}",
        "b": "(EngineCore pid=3) ERROR 11-20 10:31:09 [core.py:1] KeyError: 'lm_head.weight'",
    }
    finding = found(logs)
    assert (finding.rank, finding.line) == ("b", "KeyError: 'lm_head.weight'")


def test_a_follow_up_is_better_than_nothing() -> None:
    line = "RuntimeError: Engine core initialization failed. See root cause above."
    assert found({"a": line}).line == line


def test_a_rank_on_another_host_is_named_by_the_address_ray_gives_it() -> None:
    line = "(RayWorkerProc pid=12, ip=10.0.0.5) ERROR 11-20 10:31:02 [w.py:12] ValueError: bad"
    finding = found({"head": line})
    assert finding.address == "10.0.0.5"
    assert "10.0.0.5" in finding.where
    assert finding.line == "ValueError: bad"


def test_frames_of_a_traceback_are_no_failure_but_its_exception_is() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in main\n'
        '    raise ValueError("no")\n'
        "ValueError: no\n"
    )
    finding = found({"a": log})
    assert (finding.number, finding.line) == (4, "ValueError: no")


def test_an_exception_named_inside_a_warning_is_no_failure() -> None:
    line = (
        "WARNING 11-20 10:39:50 [system_utils.py:255] Found ulimit of 20000 and failed to"
        " automatically increase. This can cause fd limit errors like `OSError: [Errno 24]`"
    )
    assert first_failure({"a": line}) is None


def test_a_wrong_argument_is_found_without_any_time() -> None:
    log = "usage: vllm serve [model_tag] [options]\nvllm: error: unrecognized arguments: --nope\n"
    finding = found({"a": log})
    assert finding.signature
    assert finding.signature.id == "unknown-argument"


def test_times_of_vllm_ray_and_torch_are_read() -> None:
    moment = (11, 20, 10, 31, 2)
    for line in (
        "(Worker_TP0 pid=1) ERROR 11-20 10:31:02 [file.py:12] boom",
        "2026-11-20 10:31:02,123\tERROR worker.py:12 -- boom",
        "[2026-11-20 10:31:02,123 E 12 12] (raylet) boom",
        "[E1120 10:31:02.123456789 socket.cpp:1] boom",
    ):
        read = lines.read(line)
        assert read.moment
        assert read.moment[:5] == moment, line


def test_what_a_logger_puts_before_its_words_is_taken_off() -> None:
    vllm = lines.read("(EngineCore pid=7) ERROR 11-20 10:31:02 [core.py:9] \x1b[31mboom\x1b[0m")
    assert (vllm.text, vllm.level, vllm.writer) == ("boom", "ERROR", "EngineCore")
    ray = lines.read("2026-11-20 10:31:02,123\tERROR worker.py:12 -- boom")
    assert (ray.text, ray.level) == ("boom", "ERROR")


PYDANTIC = """\
(APIServer pid=812)   File "/srv/pydantic/_internal/_dataclasses.py", line 121, in __init__
(APIServer pid=812)     s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs))
(APIServer pid=812) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
(raylet, ip=10.0.0.2) something in between
(APIServer pid=812)   Value error, The model needs a thing that this one has not. \
[type=value_error, input_value=ArgsKwargs((), {'model': 'x', 'y': 1}), input_type=ArgsKwargs]
(APIServer pid=812)     For further information visit https://errors.pydantic.dev/2.12/v/value_error
(APIServer pid=812) Traceback of another thing
"""


def test_an_exception_that_only_counts_is_shown_with_its_reason() -> None:
    found = first_failure({"h-01 chat-serve": PYDANTIC})
    assert found
    assert found.line == (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig "
        "Value error, The model needs a thing that this one has not."
    )
    assert found.number == 3


def test_all_fields_that_are_wrong_are_shown_to_the_end_of_the_exception() -> None:
    text = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\n"
        "block_size\n"
        "  Input should be 1, 8 or 16 [type=literal_error, input_value=7, input_type=int]\n"
        "INFO 11-23 10:00:00 [x.py:1] bye\n"
    )
    found = first_failure({"h-01": text})
    assert found
    assert found.line.endswith("for CacheConfig block_size Input should be 1, 8 or 16")


def test_an_engine_core_that_was_killed_is_said_to_be() -> None:
    log = (
        "(APIServer pid=3) ERROR 11-23 21:50:01 [async_llm.py:7] AsyncLLM output_handler failed.\n"
        "(APIServer pid=3) ERROR 11-23 21:50:01 [async_llm.py:707] vllm.v1.engine.exceptions."
        "EngineDeadError: EngineCore encountered an issue. See stack trace (above)\n"
        "(APIServer pid=3) ERROR 11-23 21:50:02 [core_client.py:600] Engine core proc"
        " EngineCore_DP0 died unexpectedly, shutting down client.\n"
    )
    finding = found({"a serve": log})
    assert finding.signature and finding.signature.id == "engine-core-killed"
    killed = "Nov 23 21:50:00 a kernel: Out of memory: Killed process 31 (VLLM::EngineCor)\n"
    finding = found({"a serve": log, "a kernel": killed})
    assert finding.signature and finding.signature.id == "host-oom-kill"


def test_a_killed_engine_core_is_named_in_the_words_of_0_32() -> None:
    """As two H200 printed it on 27 November 2026: rank 1's core was ended by SIGKILL."""
    killed = (
        "(Worker_DP1_EP1 pid=4927) INFO 11-27 02:48:05 [multiproc_executor.py:843] Parent process"
        " exited, terminating worker queues\n"
        "(APIServer pid=4275) WARNING 11-27 02:48:05 [core_client.py:817] [shutdown] MPClient:"
        " engine core exited unexpectedly; starting cleanup\n"
        "(APIServer pid=4275) ERROR 11-27 02:48:05 [async_llm.py:906] AsyncLLM output_handler"
        " failed.\n"
        "(APIServer pid=4275) ERROR 11-27 02:48:05 [async_llm.py:906] vllm.v1.engine.exceptions."
        "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root"
        " cause.\n"
    )
    other = (
        "(Worker_DP0_EP0 pid=4930) ERROR 11-27 02:48:07 [multiproc_executor.py:1063] RuntimeError:"
        " [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed"
        " by peer [127.0.0.1]:62343. This is typically caused by a remote worker crashing.\n"
        "(APIServer pid=4236) ERROR 11-27 02:48:07 [async_llm.py:906] AsyncLLM output_handler"
        " failed.\n"
    )
    for logs in ({"here rank 1": killed}, {"here rank 0": other, "here rank 1": killed}):
        finding = found(logs)
        assert finding.signature and finding.signature.id == "engine-core-killed"
        assert "engine core exited unexpectedly" in finding.line


def test_what_ray_only_warns_of_may_be_why_a_host_does_not_join() -> None:
    refused = (
        "[2026-11-23 22:15:39,932 W 929 929] gcs_client.cc:210: Failed to get cluster ID from GCS"
        " server: Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing\n"
        "RuntimeError: Failed to connect to GCS. Last connection error: Traceback (most recent):\n"
    )
    silent = (
        "[2026-11-23 22:14:23,553 W 569 569] rpc_client.h:153: Failed to connect to GCS at address"
        " 10.213.3.11:20000 within 5 seconds.\n"
    )
    names = [found({"b ray": log}).signature for log in (refused, silent)]
    assert [one.id for one in names if one] == ["ray-token", "ray-gcs-unreachable"]


TRACEBACK = """\
ERROR 11-20 10:31:02 [core.py:9] Traceback (most recent call last):
ERROR 11-20 10:31:02 [core.py:9]   File "/opt/site-packages/vllm/v1/engine/core.py", line 7, in f
ERROR 11-20 10:31:02 [core.py:9]     return self.scheduler.schedule()
ERROR 11-20 10:31:02 [core.py:9]   File "/opt/site-packages/{}", line 8, in g
ERROR 11-20 10:31:02 [core.py:9]     assert blocks
ERROR 11-20 10:31:02 [core.py:9] AssertionError
"""


@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("vllm/v1/core/sched/scheduler.py", "scheduler-check"),
        ("vllm/distributed/kv_transfer/kv_connector/factory.py", "kv-connector"),
        ("vllm/config/model.py", "configuration-refused"),
        ("vllm/compilation/caching.py", "compile-cache-frames"),
    ],
)
def test_an_exception_without_words_is_known_by_the_frames_it_was_raised_in(
    file: str, known: str
) -> None:
    signature = found({"a": TRACEBACK.format(file)}).signature
    assert signature
    assert signature.id == known


def test_frames_of_nothing_known_say_nothing() -> None:
    assert found({"a": TRACEBACK.format("mine/own.py")}).signature is None


def test_the_source_that_a_traceback_shows_is_no_failure() -> None:
    log = """\
Traceback (most recent call last):
  File "/opt/venv/x.py", line 7, in f
    raise RuntimeError("No CUDA GPUs are available")
ValueError: something else
"""
    assert found({"a": log}).line == "ValueError: something else"


def test_what_only_follows_speaks_where_nothing_else_does() -> None:
    program = "[Fri Nov 20 10:31:02 2026] NVRM: Xid (PCI:0000:00:05): 43, pid=7, name=x, Ch 8\n"
    memory = "[Fri Nov 20 11:31:02 2026] NVRM: Xid (PCI:0000:00:08): 94, pid=8, name=x, Ch 8\n"
    (alone, both) = (found({"a": program}).signature, found({"a": program + memory}).signature)
    assert alone and both
    assert (alone.id, both.id) == ("gpu-program-fault", "gpu-memory-error")


DOWN = (
    "[WARNING] (8) : Server ranks/rank-1 is DOWN, reason: Layer4 connection problem, "
    'info: "Connection refused", check duration: 0ms. 0 active and 0 backup servers left.\n'
    "[ALERT] (8) : backend 'ranks' has no server available!\n"
)


def test_a_backend_that_is_up_again_was_down_for_a_restart() -> None:
    up = "[WARNING] (8) : Server ranks/rank-1 is UP, reason: Layer7 check passed, code: 200.\n"
    assert first_failure({"chat-router": DOWN + up}) is None
    for log in (DOWN, DOWN + up + DOWN, DOWN + up.replace("rank-1", "rank-2")):
        signature = found({"chat-router": log}).signature
        assert signature and signature.id == "front-backend-refused"


@pytest.mark.parametrize(
    "line",
    [
        # Every host whose driver was built there says it as it loads, unless Secure Boot refuses.
        "nvidia: module verification failed: signature and/or required key missing - tainting "
        "kernel",
        # Of corrected errors, too; of others the lines after it say more.
        "[   12.123456] mce: [Hardware Error]: Machine check events logged",
        # Scripts of jobs that show their commands, and programs that show their settings.
        "+ export HF_HUB_OFFLINE=1",
        "+ vllm serve /models/m --trust-remote-code --tensor-parallel-size 8",
        "Namespace(model='m', trust_remote_code=True, max_lora_rank=16)",
        "Generating a self-signed certificate",
        "srun: job 4711 has ended",
    ],
)
def test_what_healthy_hosts_and_jobs_say_is_no_failure(line: str) -> None:
    assert first_failure({"log": line}) is None


def test_what_srun_says_of_every_rank_that_fails_is_no_time_limit() -> None:
    log = (
        "ERROR 11-20 10:31:02 [x.py:1] ValueError: something nobody has met\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: n1: task 0: Exited with exit code 1\n"
    )
    assert found({"a": log}).line == "ValueError: something nobody has met"


def test_all_logs_are_read_once_for_a_line_that_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (known,) = [one for one in signatures() if one.id == "nvls-illegal-state"]
    looks: list[str] = []
    beside = Signature.holds_beside

    def counted(signature: Signature, text: str) -> bool:
        looks.append(signature.id)
        return beside(signature, text)

    monkeypatch.setattr(Signature, "holds_beside", counted)
    log = f"{known.sample}\n" * 50
    first_failure({"a": log, "b": log})
    assert looks.count(known.id) == 1


def test_a_node_of_ray_that_was_stopped_in_order_before_is_no_failure() -> None:
    """Its log holds the end of the last start, also where the next one cannot join."""
    stopped = (
        "[2026-11-25 20:56:27,571 I 725 725] (raylet) node_manager.cc:2245: Drain raylet RPC has"
        " received. Drain reason message: Node received SIGTERM; draining before shutdown.\n"
        'reason_message: "Node received SIGTERM; draining before shutdown."\n'
    )
    refused = (
        "[2026-11-25 20:57:13,464 W 991 991] gcs_client.cc:210: Failed to get cluster ID from GCS"
        " server: Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing"
        " or incorrect\n"
    )
    assert first_failure({"lab2 raylet": stopped}) is None
    finding = found({"lab2 raylet": stopped, "lab2 ray": refused})
    assert finding.signature and finding.signature.id == "ray-token"


def test_ray_ends_a_rank_for_want_of_memory_and_says_so_in_its_own_log_alone() -> None:
    """As Ray 2.60 did on a host of the lab: the engine's log says only that a rank died."""
    raylet = (
        "[2026-11-25 21:01:00,044 I 2440 2440] (raylet) node_manager.cc:3199: Killing 1 worker(s),"
        " kill details: Memory on the node (IP: 10.213.1.11, ID: 24953af7) was 21.67GB used\n"
        "OOM kill reason: Memory usage 24099897344B exceeded threshold of 24012691456B"
        " (95.0% of 25276518400B limit)\n"
    )
    engine = (
        "(EngineCore pid=100) ERROR 11-25 21:01:02 [ray_executor.py:85] RayWorkerProc rank=[0] died"
        " unexpectedly, shutting down executor.\n"
    )
    finding = found({"lab1 chat-serve": engine, "lab1 chat-ray-raylet.out": raylet})
    assert finding.signature and finding.signature.id == "ray-oom-killer"


def test_the_traceback_of_an_error_that_does_no_harm_is_no_failure() -> None:
    harmless = """2026-11-24 10:00:00,100 ERROR http_server.py:193 -- Error emitting api metrics: no
Traceback (most recent call last):
  File "/opt/ray/dashboard/http_server_head.py", line 179, in metrics_middleware
PermissionError: [Errno 13] Permission denied: '/tmp/metrics/a.db'
"""
    assert first_failure({"gpu1": harmless}) is None
    assert last_words({"gpu1": harmless}) is None
    # Another error that does no harm has no traceback: what stands behind it counts.
    of_ray = "[2026-11-24 10:00:00,100 E 7 7] a.cc:9: The metrics exporter agent is not there.\n"
    engine = "Traceback (most recent call last):\nRuntimeError: the engine is lost\n"
    found = first_failure({"gpu1": of_ray + engine})
    assert found
    assert "engine is lost" in found.line
    # What another line begins counts again.
    after = "2026-11-24 10:00:01,100 ERROR head.py:9 -- PermissionError: [Errno 13] '/models/a'\n"
    found = first_failure({"gpu1": harmless + after})
    assert found
    assert "/models/a" in found.line


def test_a_count_of_none_is_no_failure() -> None:
    recap = "gh-01 : ok=3 changed=0 unreachable=%d failed=0 skipped=0"
    assert last_words({"a": recap % 0}) is None
    assert last_words({"a": recap % 1}) is not None


def test_an_error_that_says_nothing_gives_way_to_the_exception_near_it() -> None:
    says_nothing = "2026-11-20 10:31:02 ERROR serving: Error when initializing model\n"
    raised = "{}ImportError: GPU with CUDA capability 7 0 is not supported\n"
    found = first_failure({"a": says_nothing + raised.format("")})
    assert found and "CUDA capability" in found.line
    late = first_failure({"a": says_nothing + raised.format("2026-11-20 10:31:40 ")})
    assert late and "Error when initializing model" in late.line


def test_a_line_that_only_reports_gives_way_to_one_near_it_that_says_why() -> None:
    builds = "RuntimeError: Ninja build failed. Ninja output:\n"
    why = "nvcc fatal   : A single input file is required for a non-link phase\n"
    routine = "[1/3] nvcc -c sampling.cu\n" * 30
    found = first_failure({"a": builds + why})
    assert found and found.later and found.line.startswith("nvcc fatal")
    far = first_failure({"a": builds + routine + why})
    assert far and far.line.startswith("RuntimeError")
    # An exception that nobody reads, and behind it the engine's own words.
    unread = "RuntimeError: the ring of acme (code: -16)\n"
    memory = "ERROR 11-20 10:31:02 [core.py:7] Not enough memory for 24 blocks of KV cache.\n"
    near = first_failure({"a": memory[:24].replace("ERROR", "INFO") + "begins\n" + unread + memory})
    assert near and near.line.startswith("Not enough memory")
