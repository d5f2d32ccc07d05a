"""Whatever runs a program puts its own words before the program's; they are taken off."""

from __future__ import annotations

import pytest

from vllm_ansible.record.diagnosis import lines
from vllm_ansible.record.diagnosis.verdict import diagnose

BOOM = "RuntimeError: boom"


@pytest.mark.parametrize(
    ("raw", "level", "text"),
    [
        ("2026-11-20T10:31:02.123456789Z stderr F " + BOOM, None, BOOM),
        ('{"log":"RuntimeError: \\"boom\\"\\n","stream":"stderr"}', None, 'RuntimeError: "boom"'),
        ("[1,3]<stderr>:" + BOOM, None, BOOM),
        ("[rank3]: " + BOOM, None, BOOM),
        ("[default0]:[rank0]: " + BOOM, None, BOOM),
        ("[0] [0] " + BOOM, None, BOOM),
        ("Nov 20 10:31:02 gpu1 vllm-chat[812]: " + BOOM, None, BOOM),
        (
            "gpu-w5:311:1288 [0] bootstrap.cc:112 NCCL WARN Bootstrap : no",
            "WARNING",
            "Bootstrap : no",
        ),
        (
            "[2025-07-11 15:30:57] t:8:8 [0] init.cc:960 NCCL WARN Duplicate GPU",
            "WARNING",
            "Duplicate GPU",
        ),
        ("p5:4:5 [3] int f(x*):1788 NCCL WARN NET/OFI Request", "WARNING", "NET/OFI Request"),
        ("gpu1:7719:7781 [0] NCCL INFO NET/IB : Using", "INFO", "NET/IB : Using"),
        ("[16.220112] [node:4001 :0]  ib_device.c:478  UCX  WARN  no", "WARNING", "no"),
        (
            "(raylet) [2025-08-25 20:11:45,833 E 41 41] (raylet) worker_pool.cc:1239: Failed",
            "ERROR",
            "Failed",
        ),
        ("[2024-08-04 16:18:01,609 E 40 40] core_worker.cc:234: Failed", "ERROR", "Failed"),
        ("E0704 05:12:40.118   311 nccl_communicator.cc:98] no", "ERROR", "no"),
        ("[rank8]:[W815 04:02:11.720 Gloo.cpp:524] Warning: no", "WARNING", "Warning: no"),
        ("2025-05-23T03:12:12.391Z ERROR dynamo::worker: no", "ERROR", "dynamo::worker: no"),
        ("2024-09-26T08:14:10+00:00 - gpustack.worker - INFO - up", "INFO", "up"),
        ("ERROR 04-24 14:06:40 worker_base.py:157] " + BOOM, "ERROR", BOOM),
        ("ERROR 06-05 04:18:13 [core.py:396] " + BOOM, "ERROR", BOOM),
        ("INFO:     Application startup complete.", "INFO", "Application startup complete."),
        # NATS, HAProxy of two releases, the kernel as `dmesg -T` shows it, Ray's C++ of old.
        ("[1] 2026/11/20 10:31:02.548289 [ERR] JetStream is full", "ERROR", "JetStream is full"),
        ("[1] 2026/11/20 10:31:02.548289 [INF] Server is ready", "INFO", "Server is ready"),
        ("[ALERT]    (10) : backend 'a' has no server", "ERROR", "backend 'a' has no server"),
        ("[WARNING] 049/164958 (33386) : parsing x", "WARNING", "parsing x"),
        ("[Fri Nov 20 10:31:02 2026] NVRM: Xid", None, "NVRM: Xid"),
        ("F1119 08:22:23.602 1513 1513 redis_context.cc:298] no", "FATAL", "no"),
        # etcd and Dynamo; containerd.
        ('{"level":"warn","ts":"2026-11-20T10:31:02Z","msg":"no","error":"x"}', "WARNING", "no: x"),
        ('{"time":"x","level":"ERROR","fields":{"message":"no lease"}}', "ERROR", "no lease"),
        ('time="2026-11-20T10:31:02Z" level=error msg="no \\"a\\"" id=7', "ERROR", 'no "a" id=7'),
        # docker compose, kubectl, docker with its times, SkyPilot, srun --label, TorchServe.
        ("vllm-1  | (EngineCore pid=2) ERROR 11-03 10:15:35 [core.py:708] " + BOOM, "ERROR", BOOM),
        ("[pod/vllm-0/main] ERROR 11-03 10:15:35 [core.py:708] " + BOOM, "ERROR", BOOM),
        ("2026-03-11T17:57:09.855212259Z (W pid=4) " + BOOM, None, BOOM),
        ("2026-03-11T17:57:09.855212259Z ERROR 06-28 06:11:45 w.py:1] " + BOOM, "ERROR", BOOM),
        ("(head, rank=0, pid=21) ERROR 11-03 10:15:35 [core.py:708] " + BOOM, "ERROR", BOOM),
        ("3: [rank3]: " + BOOM, None, BOOM),
        ("2024-11-18T16:43:45,496 [WARN ] W-9000-m_1.0-stderr MODEL_LOG - " + BOOM, None, BOOM),
        # A launcher that passes on at its own level, with a level of its own, and enroot by pyxis.
        ("2026-06-09 14:01:54.604 [Info] (Process) (APIServer pid=4) " + BOOM, None, BOOM),
        ("2025-03-07 23:50:27,531 - x - INFO - [2025-03-07 23:50:27 TP0] " + BOOM, None, BOOM),
        ("2025-05-30 06:29:14.119 1 uvicorn.error ERROR:    " + BOOM, "ERROR", BOOM),
        ("2026/11/20 10:00:00 [error] 31#31: *4 connect() failed", "ERROR", "connect() failed"),
        (
            "slurmstepd: error: pyxis:     [ERROR] Command not found: x",
            "ERROR",
            "Command not found: x",
        ),
        ("May 20 07:32:44.587 360 slurmstepd   0x4af00: error: pyxis:     no", None, "no"),
        ("2017-08-09 07:11:26.913584 I | etcdserver: published", "INFO", "etcdserver: published"),
    ],
)
def test_level_and_words_of_each_form(raw: str, level: str | None, text: str) -> None:
    line = lines.read(raw)
    assert (line.level, line.text) == (level, text)


@pytest.mark.parametrize(
    "raw",
    [
        "[2020-07-09T09:55:38.584] debug2: unable to open 'a/release_agent': No such file",
        "slurmd: debug:  gres/gpu: init: can't stat /dev/nvidia0: No such file or directory",
        "debug1: connect to address 10.0.0.2 port 22: Connection refused",
    ],
)
def test_what_a_daemon_tells_of_its_search_is_no_failure(raw: str) -> None:
    assert lines.read(raw).is_noise


@pytest.mark.parametrize(
    "raw",
    [
        "2026-11-20T10:31:02.123456789Z stderr F boom",
        "2026-11-20T10:31:02.391Z ERROR dynamo: no",
        "E1120 10:31:02.118   311 nccl_communicator.cc:98] no",
        "[2026-11-20 10:31:02] t:8:8 [0] init.cc:960 NCCL WARN Duplicate GPU",
        "[2026-11-20 10:31:02,123 E 12 12] (raylet) worker_pool.cc:1239: boom",
        "[1] 2026/11/20 10:31:02.548289 [ERR] boom",
        "[Fri Nov 20 10:31:02 2026] NVRM: boom",
        '{"level":"error","ts":"2026-11-20T10:31:02.123Z","msg":"boom"}',
        'time="2026-11-20T10:31:02.1Z" level=error msg=boom',
    ],
)
def test_the_moment_of_each_form(raw: str) -> None:
    moment = lines.read(raw).moment
    assert moment is not None
    assert moment[:5] == (11, 20, 10, 31, 2)


@pytest.mark.parametrize(
    "raw",
    [
        "ERROR 04-24 14:06:40 w.py:157] Error executing method load_model. This might cause",
        "ERROR 08-05 21:58:29 m.py:226] Exception in worker VllmWorkerProcess while processing",
        "ERROR 06-20 07:40:12 [m.py:273] Worker proc VllmWorker-1 died unexpectedly, shutting",
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    ],
)
def test_wrappers_give_way_to_what_they_wrap(raw: str) -> None:
    assert lines.read(raw).is_follow_up


def test_the_number_of_a_rank_is_the_writer_of_its_lines() -> None:
    assert lines.read("[rank3]: RuntimeError: boom").writer == "rank 3"
    assert lines.read("[1,5]<stderr>:RuntimeError: boom").writer == "rank 5"
    assert lines.read("[rank3]: (Worker_TP3 pid=9) RuntimeError: boom").writer == "Worker_TP3"


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: The attention sinks of this checkpoint cannot be ignored",
        "RuntimeError: Tensor model.layers.0.mlp.w has no scale, skipping quantization",
        "ERROR 11-20 10:31:02 [loader.py:7] The scale of layer 7 must not be ignored",
    ],
)
def test_a_failure_that_ends_like_a_hint_is_no_noise(text: str) -> None:
    assert lines.read(text).is_failure
    assert diagnose("It did not start", {"gpu1 serve": text}, {})["found"]


@pytest.mark.parametrize(
    "text",
    [
        "Exception ignored in: <function Ring.__del__ at 0x7f>",
        "Error: cannot read the tuning table, skipping it",
        "Could not load the plugin, ignored",
    ],
)
def test_what_a_program_passes_over_is_noise(text: str) -> None:
    assert lines.read(text).is_noise


@pytest.mark.parametrize(
    ("text", "level", "said"),
    [
        ("2026-11-20 10:31:02,123 - INFO - tuner.py:256 - acme: words", "INFO", "tuner.py:256"),
        ("2026-11-20 10:31:02,123 - acme.jit - WARNING - words", "WARNING", "words"),
        ("acme.jit - ERROR - words", "ERROR", "words"),
        ("2026-11-20 10:31:02 - ERROR - words", "ERROR", "words"),
        ("the sum of A - INFO - words", None, "the sum"),
    ],
)
def test_a_level_between_dashes_is_read(text: str, level: str | None, said: str) -> None:
    read = lines.read(text)
    assert (read.level, read.text.startswith(said)) == (level, True), read


def test_the_exceptions_of_a_group_are_read() -> None:
    """As Python 3.11 and anyio print them, in which uvicorn and starlette run."""
    text = """\
      + Exception Group Traceback (most recent call last):
      |   File "/opt/acme.py", line 3, in main
      | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
      +-+---------------- 1 ----------------
        | Traceback (most recent call last):
        |   File "/opt/acme.py", line 7, in ring
        | ValueError: max_num_seqs must be even here, got 7
        +------------------------------------
"""
    answer = diagnose("It did not start", {"gpu1 serve": text}, {})
    assert answer["found"] == "ValueError: max_num_seqs must be even here, got 7"
    table = lines.read("    | 0 | N/A  Error | python |")
    assert table.text.lstrip().startswith("|")


@pytest.mark.parametrize(
    ("raw", "level", "text"),
    [
        ("(VllmWorker rank=0 pid=882) ERROR 07-28 09:10:12 [core.py:5] " + BOOM, "ERROR", BOOM),
        ("[06:50:19.237] " + BOOM, None, BOOM),
        ("#12 47.99 " + BOOM, None, BOOM),
        ("47.99 seconds for RuntimeError", None, "47.99 seconds for RuntimeError"),
        ("FATA[0012] no such container", "FATAL", "no such container"),
        (
            "WARN[0000] the attribute version is obsolete",
            "WARNING",
            "the attribute version is obsolete",
        ),
        # What pip and uv quote of a build.
        ("      " + BOOM, None, BOOM),
        ("      return self.boom()", None, "      return self.boom()"),
    ],
)
def test_ranks_images_and_builds_put_words_before_it_too(
    raw: str, level: str | None, text: str
) -> None:
    line = lines.read(raw)
    assert (line.level, line.text) == (level, text)


def test_pip_installs_though_another_package_misses_a_version() -> None:
    notice = (
        "ERROR: pip's dependency resolver does not currently take into account all the packages "
        "that are installed. This behaviour is the source of the following dependency conflicts."
    )
    assert lines.read(notice).is_noise
    assert not lines.read("ERROR: ResolutionImpossible: for help visit pip's pages").is_noise
