"""A failing line that no signature knows is read by its structure, with the names that it holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from vllm_ansible.node.accelerators import xid
from vllm_ansible.record.diagnosis import condition, raised
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.match import signatures
from vllm_ansible.record.diagnosis.verdict import diagnose

SITE = "/opt/venv/lib/python3.12/site-packages"


def of(*texts: str) -> dict[str, Any]:
    return diagnose("It did not start", {"gpu1 serve": "\n".join(texts)}, {})


def traceback(*packages: str) -> str:
    frames = [f'  File "{SITE}/{name}/part.py", line 7, in f\n    call()' for name in packages]
    return "\n".join(["Traceback (most recent call last):", *frames])


LISTED = [row for _, rows in raised.messages() for row in rows]


@pytest.mark.parametrize("family", [*LISTED, *raised.families()], ids=lambda one: str(one.id))
def test_a_family_names_only_what_its_line_and_its_traceback_hold(family: raised.Family) -> None:
    named = {*family.pattern.groupindex, "package", "caller", "top", "whole"}
    named |= {"address", "meaning", "action", "own", "advice", "named", "own_code"}
    for text in (*family.cause, *family.fix):
        assert condition.names_in(text) <= named
    assert set(family.over) <= {one.id for one in signatures() if one.generic}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["ModuleNotFoundError: No module named 'tensorrt'"],
            "The package tensorrt is missing in the Python environment",
        ),
        (
            [traceback("sglang"), "ModuleNotFoundError: No module named 'sgl_kernel'"],
            "The package sgl_kernel, which sglang imports, is missing",
        ),
        (
            # Of a name that several distributions share, each part is a package of its own.
            ["ModuleNotFoundError: No module named 'google.protobuf'"],
            "The package google.protobuf is missing in the Python environment",
        ),
        (
            [traceback("sglang"), "ModuleNotFoundError: No module named 'sgl_kernel.ops'"],
            "sglang imports sgl_kernel.ops, which the installed sgl_kernel does not have",
        ),
        (
            [
                traceback("sglang"),
                "ImportError: cannot import name 'plan' from 'flashinfer.decode'",
            ],
            "sglang imports plan from flashinfer, and the installed flashinfer has no such name",
        ),
        (
            ["OSError: /a/libpplx_new.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"],
            "built against another torch",
        ),
        (
            [traceback("acme_cache", "deep_kernels"), "AssertionError: rows"],
            "A check inside deep_kernels failed, called by acme_cache",
        ),
        (["RuntimeError: CUDA error: uncorrectable NVLink error detected"], "An NVLink of this"),
        (["NVRM: Xid (PCI:0000:3b:00): 158, pid=1"], "Xid 158 of the GPU at 0000:3b:00: GPU Fatal"),
        (
            ["acme.StoreError: failed to connect to 10.0.0.9:7777: Connection refused"],
            "10.0.0.9:7777 cannot be reached",
        ),
        (["RuntimeError: unexpected EOF, expected 7491165 more bytes"], "incomplete or damaged"),
        (["RuntimeError:", "    the strange thing: No space left on device"], "full"),
        (
            ["2026-01-30 22:10:05 | ERROR | stderr | KeyError: 'num_experts_strange'"],
            "lacks num_experts_strange",
        ),
    ],
)
def test_what_a_line_names_is_said(texts: list[str], said: str) -> None:
    cause = of(*texts)["cause"]
    assert said in cause, cause


def test_a_line_that_shows_a_failure_without_its_cause_is_said_as_the_usual_one() -> None:
    gone = of("acme.StoreError: failed to connect to 10.0.0.9:7777: Connection refused")
    assert gone["cause"].startswith(USUAL)
    assert not of("ModuleNotFoundError: No module named 'tensorrt'")["cause"].startswith(USUAL)


@pytest.mark.parametrize(
    "line",
    [
        "ERROR mlx5_core 0000:3b:00.0: probe failed with error code -11",
        "RuntimeError: initialization of the device failed with status -6",
    ],
)
def test_a_negative_number_that_no_process_ended_with_is_no_signal(line: str) -> None:
    assert "SIG" not in of(line).get("cause", "")


@pytest.mark.parametrize("name", ["ray-token", "ray-version-mismatch", "ray-oom-killer"])
def test_a_line_of_ray_that_states_its_cause_is_certain(name: str) -> None:
    (signature,) = [one for one in signatures() if one.id == name]
    told = of(f"[2026-11-20 10:31:01,000 E 1 1] {signature.sample}")
    assert told["signature"] == name
    assert not told["cause"].startswith(USUAL)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: a word that nobody reads",
        "srun: error: gpu-1: task 0: Exited with exit code 2",
    ],
)
def test_nothing_is_said_of_what_tells_nothing(line: str) -> None:
    result = of(line)
    assert "cause" not in result
    assert result["found"]


def test_what_follows_an_unknown_failure_is_not_certain() -> None:
    unknown = "ERROR 11-20 10:31:01 [a.py:1] AcmeError: a word that nobody reads"
    known = "ERROR 11-20 10:31:03 [a.py:1] OSError: [Errno 24] Too many open files"
    assert not of(known)["cause"].startswith(USUAL)
    assert of(known, unknown)["signature"] == of(known)["signature"]
    assert of(unknown, known)["cause"].startswith(USUAL) or "cause" not in of(unknown, known)


def test_the_innermost_reason_of_a_line_wins() -> None:
    line = (
        "serve: error: argument --model: 'a' is no model. Error: Failed to fetch it: <urlopen "
        "error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: no issuer>"
    )
    assert of(line)["signature"] == "certificate-untrusted"


def test_every_action_that_nvidia_asks_for_has_its_words() -> None:
    asked = {action for _, action in xid.CATALOG.values()}
    silent = {"", "IGNORE", "UPDATE_SWFW", "CHECK_UVM", "WORKFLOW_XID_45"}
    assert asked - silent == set(raised._ACTIONS) & asked


def test_a_wrapper_is_no_package_that_failed() -> None:
    frames = traceback("vllm", "transformers", "torch", "asyncio")
    assert raised.packages(frames) == {"package": "transformers", "caller": "vllm"}
    assert raised.packages("") == {}


def test_a_part_of_a_package_that_the_package_itself_lacks_is_no_matter_of_two_packages() -> None:
    line = "ModuleNotFoundError: No module named 'vllm.vllm_flash_attn.fa_utils'"
    assert "a part of itself that is not installed" in of(traceback("vllm"), line)["cause"]
    assert "vllm and vllm" not in of(traceback("vllm"), line)["cause"]


def test_a_check_that_says_what_it_expected_is_no_defect() -> None:
    said = of(traceback("vllm"), "AssertionError: Expected at least 9 slots, but found 7 instead.")
    assert "A requirement is not met" in said["cause"]
    assert "defect" in of(traceback("vllm"), "AssertionError: slots == 9")["cause"]


def test_what_is_not_valid_is_said_in_the_words_of_the_line() -> None:
    assert "a.toml is not a valid table" in of("OSError: /etc/a.toml is not a valid table")["cause"]


def test_a_limit_that_only_names_the_capture_of_graphs_is_no_failed_capture() -> None:
    line = "ValueError: 9 sequences exceed the 7 blocks, so CUDA graph capture cannot proceed"
    assert "9 sequences exceed" in of(traceback("vllm"), line)["cause"]
    assert "captured" in of("RuntimeError: cannot free memory during graph capture")["cause"]


def test_families_are_no_signatures() -> None:
    ids = [one.id for one in raised.families()]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z-]+", one) for one in ids)


@pytest.mark.parametrize(
    ("line", "cause", "fix"),
    [
        (
            "vllm.service: Main process exited, code=exited, status=217/USER",
            "user of the unit does not exist",
            "getent passwd",
        ),
        (
            "vllm.service: Failed to locate executable /opt/vllm: No such file or directory",
            "/opt/vllm, the program of the unit, is not there",
            "ls -l /opt/vllm",
        ),
        (
            "vllm.service: Failed at step EXEC spawning /home/a/vllm: Permission denied",
            "/home/a/vllm, the program of the unit, may not be executed",
            "namei -l /home/a/vllm",
        ),
        (
            "vllm.service: Failed to locate executable /home/a/run.sh: Permission denied",
            "SELinux forbids",
            "ausearch",
        ),
        (
            "error: Distribution `tensorflow==2.15.0 @ registry+https://index.lan/simple` can't be "
            "installed because it doesn't have a source distribution or wheel for the current "
            "platform",
            "for this Python or for this system",
            "uv sync --python",
        ),
        (
            "srun: fatal: cpus-per-task set by two different environment variables "
            "SLURM_CPUS_PER_TASK=3 != SLURM_TRES_PER_TASK=cpu=1",
            "SLURM_CPUS_PER_TASK=3 and SLURM_TRES_PER_TASK=cpu=1 to srun",
            "--cpus-per-task",
        ),
        (
            "slurmctld: fatal: auth/jwt: cannot stat '/etc/slurm/jwt.key': No such file",
            "/etc/slurm/jwt.key, the key",
            "Copy the key",
        ),
        (
            "Error: runc: runc create failed: error running hook #0: fork/exec "
            "/usr/bin/nvidia-cdi-hook: no such file or directory",
            "/usr/bin/nvidia-cdi-hook, a hook",
            "nvidia-container-toolkit",
        ),
        (
            "vllm.service: Main process exited, code=exited, status=226/NAMESPACE",
            "view of the file system",
            "ReadWritePaths",
        ),
        (
            "srun: error: Unable to allocate resources: User's group not permitted to use this "
            "partition",
            "AllowGroups",
            "scontrol show partition",
        ),
        (
            "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing "
            "or exceeds some limit)",
            "MaxTime",
            "--time",
        ),
        (
            "slurmctld: fatal: Incorrect permissions on state save loc: /var/spool/slurmctld",
            "/var/spool/slurmctld .*SlurmUser",
            "chown -R slurm: /var/spool/slurmctld",
        ),
        (
            "slurmd: fatal: Unable to determine this slurmd's NodeName",
            "NodeHostname is this host's name",
            "hostname -s",
        ),
        (
            "slurmctld: fatal: The FastSchedule option has been removed. Please update it.",
            "FastSchedule, which this release",
            "Remove it",
        ),
        (
            "[2026-11-20T09:55:38.584] error: cgroup namespace 'freezer' not mounted. aborting",
            "hierarchy freezer is not mounted",
            "cgroup.conf",
        ),
        (
            "slurmd: error: _fetch_child: failed to fetch remote configs: Unexpected message",
            "could not take its configuration",
            "scontrol ping",
        ),
        (
            'docker: Error response from daemon: runc create failed: error mounting "/etc/a.conf" '
            'to rootfs at "/a.conf": mount /etc/a.conf:/a.conf: not a directory',
            "/etc/a.conf is a file on one side",
            "ls -ld /etc/a.conf",
        ),
        (
            'oci runtime error: container init caused \\"rootfs_linux.go:57: mounting '
            '\\\\\\"/srv/b.conf\\\\\\" to rootfs caused \\\\\\"not a directory\\\\\\"',
            "/srv/b.conf is a file on one side",
            "ls -ld /srv/b.conf",
        ),
        (
            "docker: Error response from daemon: OCI runtime create failed: json: cannot unmarshal "
            "object into Go struct field Process.capabilities of type []string: unknown.",
            "form that this runc",
            "runc --version",
        ),
        (
            "RuntimeError: [6] is setting up NCCL communicator and retrieving ncclUniqueId from "
            "[0] via c10d key-value store by key '0', but store->get('0') got error: Timeout",
            "Rank 0 did not begin",
            "log of rank 0",
        ),
    ],
)
def test_a_message_of_a_source_gets_its_cause_and_its_fix(line: str, cause: str, fix: str) -> None:
    answer = of(line)
    assert re.search(cause, answer["cause"])
    assert fix in answer["fix"]


def test_a_program_that_may_be_missing_or_closed_or_misread_is_not_said_as_certain() -> None:
    line = "x.service: Main process exited, code=exited, status=203/EXEC"
    assert of(line)["cause"].startswith(USUAL)


def test_a_count_of_kills_that_cannot_be_read_is_no_kill() -> None:
    line = "systemd[1]: a.service: Failed to read oom_kill field of memory.events cgroup attribute"
    assert of(line).get("signature") != "host-oom-kill"


HOOK = (
    "docker: Error response from daemon: OCI runtime create failed: error running hook #0: "
    "exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\n{}: unknown.\n"
)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "nvidia-container-cli: initialization error: driver rpc error: failed to process "
            "request",
            "ended before it answered",
        ),
        ("nvidia-container-cli: initialization error: driver error: timed out", "took longer"),
        ("nvidia-container-cli.real: initialization error: nvml error: gpu is lost", "off the bus"),
        ("nvidia-container-cli: initialization error: cuda error: unknown error", "on the host"),
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version "
            "mismatch",
            "under the loaded kernel module",
        ),
    ],
)
def test_what_a_hook_of_a_container_reports_is_read_below_dockers_line(
    line: str, cause: str
) -> None:
    assert cause in diagnose("x", {"a": HOOK.format(line)}, {})["cause"]
