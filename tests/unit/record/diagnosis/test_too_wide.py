"""Lines that only look like those of a family, which were once said to be it as if certain."""

from __future__ import annotations

import time

import pytest

from vllm_ansible.record.diagnosis import raised
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.match import match
from vllm_ansible.record.diagnosis.verdict import diagnose


def cause(line: str) -> str:
    result = diagnose("It did not start", {"gpu1 serve": line}, {})
    return str(result.get("cause", ""))


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("limited", "ValueError: The prompt has 429 tokens and is longer than 256"),
        ("limited", "RuntimeError: The size of tensor a (429) must match that of tensor b (430)"),
        ("limited", "ValueError: expected 429 tensors in the index, found 428"),
        ("limited", "ValueError: the reply would exceed the generate limit"),
        ("access-refused", "ValueError: At most 403 image(s) may be provided in one prompt"),
        ("access-refused", "RuntimeError: shard 401 of 512 has another form"),
        ("cache-not-writable", "ValueError: Cannot create KV cache: 0 blocks left"),
        ("cache-not-writable", "RuntimeError: Could not write to KV cache slot 77"),
        ("cache-not-writable", "RuntimeError: Unable to create prefix cache index"),
        ("cache-not-writable", "RuntimeError: the KV cache of layer 3 is read-only"),
        ("version-refused", "ValueError: this backend requires num_heads >= 64"),
        ("version-refused", "ValueError: this backend requires world_size >= 2"),
        ("version-refused", "ValueError: this backend requires page_size>=16"),
        ("version-refused", "ValueError: this backend requires max_batch_size >= 1.5"),
        ("version-refused", "ValueError: this requires gpu_memory_utilization > 0.5"),
        ("version-refused", "ValueError: this requires compute_capability >= 9.0"),
        ("engine-of-another-tensorrt", "Failed to deserialize a message from the engine core"),
        ("engine-of-another-tensorrt", "ValueError: incompatible engine arguments"),
        ("versions-differ", "ValueError: this model needs about 45.2 GiB"),
        ("versions-differ", "ValueError: Sequence needs tokens 512"),
        ("versions-differ", "ValueError: unsupported version 3 of a checkpoint"),
        ("weights-damaged", "RuntimeError: scrcpy is not there"),
        ("weights-damaged", "RuntimeError: subchecksums"),
    ],
)
def test_a_word_or_number_of_a_family_alone_is_not_that_family(family: str, line: str) -> None:
    one = next(one for one in raised.families() if one.id == family)
    assert not one.pattern.search(line)
    said = cause(line).removeprefix(USUAL)
    assert not said or said not in one.cause


@pytest.mark.parametrize(
    ("family", "line"),
    [
        ("limited", "acme.HubError: HTTP/1.1 429"),
        ("limited", "acme.HubError: status code: 429 for url"),
        ("limited", "acme.HubError: HTTP Error 429: slow down"),
        ("limited", "acme.HubError: 429 Client Error"),
        ("limited", "acme.HubError: 429 Too Many Requests"),
        ("limited", "acme.HubError: {'status_code': 429}"),
        ("limited", "acme.HubError: rate limited"),
        ("access-refused", "acme.HubError: 401 Client Error"),
        ("access-refused", "acme.HubError: HTTP status 403"),
        ("access-refused", "acme.HubError: status=401"),
        ("access-refused", "acme.HubError: Error code: 401 - {}"),
        ("cache-not-writable", "OSError: Cannot create cache directory /root/.cache/acme"),
        ("cache-not-writable", "OSError: could not write to '/root/.cache/acme'"),
        ("cache-not-writable", "OSError: the cache directory is not writable"),
        ("version-refused", "ValueError: this release requires transformers>=5.1"),
        ("version-refused", "ValueError: it requires the flashinfer-python == 0.6.1"),
        ("engine-of-another-tensorrt", "acme: Failed to deserialize the cuda engine"),
        ("engine-of-another-tensorrt", "acme: cannot deserialize the engine file of rank 0"),
        ("engine-of-another-tensorrt", "IRuntime::deserializeCudaEngine: Error Code 1"),
        ("versions-differ", "ImportError: Numba needs NumPy 2.2 or less. Got NumPy 2.3."),
        ("weights-damaged", "RuntimeError: crc32 of the record differs"),
        ("weights-damaged", "RuntimeError: CRC error"),
        ("weights-damaged", "RuntimeError: checksums differ"),
    ],
)
def test_the_line_of_a_family_is_still_read(family: str, line: str) -> None:
    one = next(one for one in raised.families() if one.id == family)
    assert one.pattern.search(line)


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("waited for the engine cores, 600 seconds elapsed", ""),
        ("connect to 10.0.0.9, 29500 timed out", "10.0.0.9, 29500"),
        ("connect to (gpu1.lab, 29500) timed out", "gpu1.lab, 29500"),
        ("connect to gpu1:29500 timed out", "gpu1:29500"),
        ("connect to tcp://gpu1:29500 timed out", "tcp://gpu1:29500"),
        ("connect to [fd00-1]:29500 timed out", "fd00-1]:29500"),
        ("connect to gpu-1<29500> failed", "gpu-1<29500"),
        ("raised at worker.py:600", ""),
    ],
)
def test_a_word_before_a_number_is_no_address(line: str, address: str) -> None:
    assert raised._address(line).get("address", "").lstrip("[") == address


@pytest.mark.parametrize("word", ["aGVsbG8x", "a.", "a-", "_1", "a+", "version"])
def test_a_long_word_is_read_in_a_time_that_grows_with_it_alone(word: str) -> None:
    """16,000 characters of such a word once took seconds of a processor; 64 KiB take under one."""
    line = f"AcmeError: {word * (65536 // len(word))}"
    started = time.process_time()
    raised.read(line)
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "line",
    [
        "memory.events: low 0 high 0 max 0 oom 0 oom_kill 0",
        'memory.events: {"oom_kill": 0}',
        "oom_kill_disable 0",
        "vm.oom_kill_allocating_task = 0",
        "oom-killer disabled for cgroup /slurm/job_7",
        "docker run --oom-kill-disable=false acme",
    ],
)
def test_no_kill_is_no_kill(line: str) -> None:
    found = match(line)
    assert found is None or found.id != "host-oom-kill"


@pytest.mark.parametrize(
    "line",
    [
        "memory.events: low 0 high 0 max 12 oom 3 oom_kill 2",
        "python3 invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)",
    ],
)
def test_a_kill_is_a_kill(line: str) -> None:
    found = match(line)
    assert found is not None and found.id == "host-oom-kill"
