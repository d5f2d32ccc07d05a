"""Failures of other people's deployments get their right cause, and healthy logs get none.

data/others and data/batch8 to batch14b hold logs that were rebuilt from public threads in which the
cause was confirmed. Of the batches, each has its half: what was learned from (a), what was
held out (b), what was drawn after both (c, d). Of those that are `open`, the cause is not told yet,
or only its family.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.verdict import diagnose

DATA = Path(__file__).parent / "data"
BATCHES = (
    "others",
    "batch8",
    "batch9",
    "batch10",
    "batch11",
    "batch12",
    "batch13a",
    "batch13b",
    "batch14a",
    "batch14b",
)
FILES = sorted(file for batch in BATCHES for file in (DATA / batch).glob("*.yaml"))
LOGS = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in FILES]
OPEN = [one for one in LOGS if one.get("open")]
FAILURES = [one for one in LOGS if one["kind"] == "failure" and not one.get("open")]
HEALTHY = [one for one in LOGS if one["kind"] == "healthy"]


def told(log: dict[str, Any]) -> dict[str, Any]:
    return diagnose("It did not start", log.get("files") or {"host serve": log["excerpt"]}, {})


def test_all_of_them_are_here() -> None:
    assert (len(FAILURES), len(OPEN), len(HEALTHY)) == (770, 29, 149)


@pytest.mark.parametrize("log", FAILURES, ids=lambda one: str(one["id"]))
def test_the_cause_is_the_one_that_was_confirmed(log: dict[str, Any]) -> None:
    answer = told(log)
    cause = " / ".join(answer.get(name, "") for name in ("cause", "otherwise"))
    assert any(re.search(pattern, cause, re.IGNORECASE) for pattern in log["accept"]), cause


@pytest.mark.parametrize("log", OPEN, ids=lambda one: str(one["id"]))
def test_what_is_not_known_is_not_said_as_certain(log: dict[str, Any]) -> None:
    cause = told(log).get("cause", "")
    handed_on = re.search("^Not known from this line|that the line names", cause)
    assert not cause or cause.startswith(USUAL) or handed_on, cause


@pytest.mark.parametrize("log", HEALTHY, ids=lambda one: str(one["id"]))
def test_a_healthy_log_gets_no_cause(log: dict[str, Any]) -> None:
    result = told(log)
    assert "signature" not in result, result
    assert "cause" not in result, result


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("OSError: [Errno 107] Transport endpoint is not connected", "mount-gone"),
        ("NCCL WARN Call to recv failed : Transport endpoint is not connected", "mount-gone"),
        ("OSError: [Errno 19] No such device", "file-system-cannot-map"),
        ("WARNING 11-26 [scheduler.py:9] 3 requests preempted by memory pressure", "job-preempted"),
        ("mlx5_core 0000:65:00.1 eth3: Link down", "link-down"),
        ("get_mempolicy: Operation not permitted", "not-permitted"),
        ("NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, Ch 00000008", "xid-other"),
        ("NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed to 0x0 (None)", "xid-other"),
        (
            "x.h:3:2: error: #error This file requires the 2017 standard",
            "compiler-and-headers-differ",
        ),
        (
            "ERROR The Python installed in this system is not supported",
            "device-not-of-this-driver",
        ),
        ("gres.conf: line 3: syntax error, unexpected WORD", "start-script-wrong"),
        ("a.sh: /venv/bin/python: bad interpreter: Text file busy", "interpreter-not-there"),
        ("a.sh: /venv/bin/python: bad interpreter: Permission denied", "interpreter-not-there"),
    ],
)
def test_a_line_of_another_kind_is_not_taken_for_it(line: str, signature: str) -> None:
    assert told({"excerpt": line}).get("signature") != signature


def test_what_a_program_said_before_it_served_is_no_cause() -> None:
    (log,) = (one for one in FAILURES if one["id"] == "fd-limit")
    assert "signature" in told(log)
    served = f"{log['excerpt']}INFO:     Application startup complete.\n"
    assert "signature" not in diagnose("x", {"a": served}, {})
    # It served, and failed afterwards.
    again = diagnose("x", {"a": served + log["excerpt"]}, {})
    assert again["signature"] == "open-files"


def test_a_specific_cause_near_a_generic_one_is_said() -> None:
    (log,) = (one for one in FAILURES if one["id"] == "getpwuid-compile")
    assert told(log)["signature"] == "user-without-name"


def test_ranks_over_several_hosts_that_go_silent_are_no_matter_of_one_host() -> None:
    line = "gpu1:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init COMPLETE\n"
    # The other rank has not joined, or its log is not there.
    assert "signature" not in diagnose("x", {"a": line}, {})
    line += line.replace("rank 0", "rank 1")
    assert diagnose("x", {"a": line}, {})["signature"] == "p2p-hangs"
    over = "gpu1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/Socket/0\n"
    assert "signature" not in diagnose("x", {"a": over + line}, {})


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("OSError: [Errno 28] No space left on device: '/psm_91ab3c05'", "shm-too-small"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_77'", "shm-too-small"),
        ("OSError: [Errno 28] No space left on device: '/data/psm_models/a'", "disk-full"),
        ("OSError: [Errno 28] No space left on device: '/models/psm_a.bin'", "disk-full"),
    ],
)
def test_a_full_shared_memory_is_no_full_disk(line: str, known: str) -> None:
    assert diagnose("x", {"a": line}, {})["signature"] == known


def test_error_401_is_said_of_nvls_only_where_nvls_is_in_use() -> None:
    line = "Error: Cuda failure 401 'the operation cannot be performed in the present state'\n"
    beside = "gpu-1:7:7 [0] NCCL INFO NVLS multicast support is available on dev 0\n"
    assert diagnose("x", {"a": beside + line}, {})["signature"] == "nvls-illegal-state"
    assert "signature" not in diagnose("x", {"a": line}, {})


def test_where_a_library_wrote_a_line_tells_what_failed() -> None:
    line = "gpu-1:7:9 [3] transport/nvls.cc:{} NCCL WARN Cuda failure 1 'invalid argument'\n"
    assert diagnose("x", {"a": line.format(254)}, {})["signature"] == "nvls"
    elsewhere = line.replace("transport/nvls.cc", "enqueue.cc").format(12)
    assert "signature" not in diagnose("x", {"a": elsewhere}, {})
