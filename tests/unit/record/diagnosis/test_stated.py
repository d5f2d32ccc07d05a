"""A program that states its own cause, in the line, beside it or by figures, is read by that."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.verdict import diagnose


def told(log: str) -> dict[str, Any]:
    return {"cause": "", "fix": "", **diagnose("It did not start", {"gpu1 serve": log}, {})}


@pytest.mark.parametrize(
    ("free", "said"),
    [
        ("174.24/178.35", "gpu_memory_utilization asks for more than a device has"),
        ("67.24/79.25", "Another process"),
    ],
)
def test_how_much_is_free_tells_who_holds_the_rest(free: str, said: str) -> None:
    line = (
        f"ValueError: Free memory on device cuda:7 ({free} GiB) on startup is less than desired "
        "GPU memory utilization (0.98, 174.78 GiB)."
    )
    assert said in told(line)["cause"]


@pytest.mark.parametrize(
    ("between", "captures"),
    [
        ("Capturing the model for CUDA graphs.\n", True),
        ("Capturing the model for CUDA graphs.\nGraph capturing finished in 7 secs\n", False),
        ("Loading model weights took 7.51 GB\n", False),
        # A hint of what may help is no end.
        ("If you are running out of memory, lower gpu_memory_utilization\n", False),
    ],
)
def test_memory_that_ends_during_the_capture_is_said_so(between: str, captures: bool) -> None:
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB.\n"
    assert ("capture of CUDA graphs" in told(between + full)["cause"]) is captures


def test_an_assertion_without_words_shows_what_it_asserts() -> None:
    frame = '  File "/opt/venv/lib/python3.12/site-packages/vllm/spec_decode/worker.py", line 7\n'
    log = f"Traceback (most recent call last):\n{frame}    assert rings == 8\nAssertionError"
    assert "(what is not so: `assert rings == 8`)" in told(log)["cause"]
    assert "what is not so" not in told(f"{log}: eight rings, not 7")["cause"]


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("Extra inputs are not permitted", "The field rings is not one that RingConfig has"),
        ("Field required", "The field rings of RingConfig is required, and was not given"),
        (
            "Input should be 1, 8 or 16",
            'rings of RingConfig has a value that is not allowed: "Input',
        ),
    ],
)
def test_what_pydantic_refuses_is_named(what: str, cause: str) -> None:
    head = "pydantic_core._pydantic_core.ValidationError: 1 validation error for RingConfig"
    kind = "[type=a_kind, input_value=48, input_type=int]"
    answer = told(f"{head}\nrings\n  {what} {kind}\n    For further information visit x\n")
    assert cause in answer["cause"]
    assert not answer["cause"].startswith(USUAL)
    # As an answer of a server holds it.
    body = (
        f'{{"code": 400, "message": "1 validation error for RingConfig\\nrings\\n  {what} {kind}"}}'
    )
    assert cause in told(f"INFO: a request\n{body}\n")["cause"]


def test_a_build_without_torch_is_no_environment_without_torch() -> None:
    frame = '        File "/c/setuptools/build_meta.py", line 512, in run_setup\n'
    raised = "      ModuleNotFoundError: No module named 'torch'\n"
    head = "      Traceback (most recent call last):\n"
    assert "isolated build environment" in told(head + frame + raised)["cause"]
    assert "is missing in the Python environment" in told(raised.strip())["cause"]


def test_what_the_resolver_explains_is_told_apart() -> None:
    head = (
        "  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:\n  ╰─▶ Because "
    )
    other = "a==1 depends on ring==0.37.0 and b==1 depends on ring>=0.38.0, a and b conflict.\n"
    none = (
        "there is no version of ring==0.37.0 and a==1 depends on ring==0.37.0, a cannot be used.\n"
    )
    assert "need different versions" in told(head + other)["cause"]
    assert "No index that is asked has the version" in told(head + none)["cause"]


def test_a_line_of_haproxy_is_named_with_its_place() -> None:
    line = "[ALERT] (20) : config : parsing [/etc/haproxy.cfg:57] : {}\n"
    refused = told(line.format("'ring' expects <name> as argument."))
    assert refused["cause"].endswith(
        "haproxy.cfg:57 of its configuration: 'ring' expects <name> as argument"
    )
    assert refused["fix"].startswith("Correct /etc/haproxy.cfg:57")
    name = told(line.format("'server gpu1' : could not resolve address 'gpu1'."))
    assert "address of server gpu1" in name["cause"] and "init-addr" in name["fix"]


def test_the_status_of_the_hub_is_read_behind_a_newline_that_stands_as_two_letters() -> None:
    line = r"OSError: You are trying to access a gated repo.\n{} Client Error. (Request ID: 1)"
    assert "has not accepted" in told(line.format(403))["cause"]
    assert "has not accepted" not in told(line.format(401))["cause"]


def test_ranks_that_wait_for_a_block_of_broadcast_do_not_go_on() -> None:
    line = "INFO 07-24 03:11 No available shared memory broadcast block found in 60 seconds."
    assert "does not go on" in told(line)["cause"]
    assert not told(f"{line}\nINFO:     Application startup complete.\n")["cause"]


def test_fields_of_tracing_are_no_part_of_what_a_program_says() -> None:
    line = (
        "2026-07-02T08:10:12.530092Z ERROR acme::discovery::watcher: Error adding the ring "
        'error=rings must be eight ring_name="fp8-ring" namespace="default"'
    )
    answer = told(line)
    assert answer["cause"].endswith('"rings must be eight"')
    assert "quantization" not in answer["fix"]
