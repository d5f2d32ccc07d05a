"""What a line says itself is repeated where no signature and no family knows more."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.record.diagnosis import own_words, page
from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.verdict import diagnose


def of(*texts: str) -> dict[str, Any]:
    return diagnose("It did not start", {"gpu1 serve": "\n".join(texts)}, {})


@pytest.mark.parametrize(
    ("line", "innermost"),
    [
        ("ValueError: the size is odd", "the size is odd"),
        ("RuntimeError: worker failed: acme.PlanError: 7 is too many here", "7 is too many here"),
        (
            "docker: Error response from daemon: OCI runtime create failed: runc create failed: "
            "unable to start: error running hook #0: exit status 1, stderr: no such toolkit",
            "no such toolkit",
        ),
        ("launch failed (Caused by ProxyError('no proxy'))", "ProxyError('no proxy'))"),
        ("what():  the store is full", "the store is full"),
        # An exception in parentheses says no more than what is before it.
        ("cannot start acme (ModuleNotFoundError: No module)", "same"),
        ("a line that wraps nothing", "same"),
        ("AcmeError: ", "same"),
    ],
)
def test_the_innermost_words_stand_behind_what_wraps_them(line: str, innermost: str) -> None:
    assert own_words.innermost(line) == (line.strip() if innermost == "same" else innermost)


def test_a_reason_ends_before_what_is_no_reason_and_is_not_long() -> None:
    line = "ValueError: blocks must be even [type=value_error, input_value=...]"
    assert own_words.reason(line) == "blocks must be even"
    assert own_words.reason("KeyError: 'key'") == ""
    assert len(own_words.reason(f"ValueError: {'a word ' * 200}")) < 300


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("ValueError: too long. Try lowering it.", "Try lowering it"),
        ("ValueError: rank 3 is odd", ""),
        (
            "AcmeError: no room here. Please set a smaller size. That is all.",
            "Please set a smaller size",
        ),
    ],
)
def test_advice_is_what_the_words_say_to_do(line: str, advice: str) -> None:
    assert own_words.advice(line) == advice


def test_a_reason_that_nobody_knows_is_repeated_with_its_advice() -> None:
    line = "RuntimeError: The frobnicator requires an even ring. Please choose an even ring."
    answer = of(line)
    assert answer["cause"].endswith(
        'the one that the line names: "The frobnicator requires an even ring. Please choose an '
        'even ring"'
    )
    assert answer["fix"] == "Please choose an even ring (as the line says)"


def test_what_is_repeated_holds_no_secret_on_the_page() -> None:
    token = "hf_" + "Abc123" * 6
    line = f"RuntimeError: The ring requires another key than {token}. Please change {token} here."
    answer = page.explain({"gpu1 serve": line})
    assert "The ring requires another key" in answer["cause"]
    assert answer["fix"].startswith("Please change")
    assert token not in page.page(answer)


def test_a_signature_that_hands_on_repeats_the_words_of_its_line() -> None:
    frame = '  File "/opt/venv/lib/python3.12/site-packages/vllm/config/ring.py", line 7, in f'
    answer = of(
        "Traceback (most recent call last):", frame, "    raise", "ValueError: ring 7 is odd here"
    )
    assert answer["signature"] == "configuration-refused"
    assert answer["cause"].endswith('the line names: "ring 7 is odd here"')


def test_what_a_library_warned_of_before_its_engine_ended_is_the_cause() -> None:
    warning = (
        "gpu-1:7:9 [0] misc/socket.cc:9 NCCL WARN socketStartConnect: Connect to "
        "169.254.3.1<40815> failed : Software caused connection abort"
    )
    ended = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)"
    answer = of(warning, ended)
    assert "169.254.3.1<40815" in answer["cause"]
    assert answer["cause"].startswith(USUAL)
    # Without the failure after it, no warning is one.
    assert "cause" not in of(warning, "gpu-1:7:9 [0] NCCL INFO Using network Socket")


def test_an_exception_gives_way_to_the_one_that_it_raised() -> None:
    answer = of(
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        "RuntimeError: Found Acme Z1 which is too old to be supported by the triton GPU compiler",
    )
    assert answer["found"].startswith("RuntimeError: Found Acme Z1")


def test_last_lines_without_a_level_speak_where_no_other_line_does() -> None:
    line = "2018/01/19 06:22:50 Failed to start nvml with error: could not load NVML library."
    answer = of("2018/01/19 06:22:50 Loading NVML", line)
    assert answer["cause"].startswith(f"{USUAL}NVIDIA's management library (NVML)")
    # What goes on after it, or says that it goes on, has not failed.
    assert "cause" not in of(line, "2018/01/19 06:22:51 Server started")
    assert "cause" not in of(line.replace("library.", "library, ignored"))
    assert "cause" not in of(f"INFO 01-19 06:22:50 [a.py:1] {line[20:]}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("AcmeError: cudaErrorSystemNotReady", "fabric is not ready"),
        ("AcmeError: CUDA_ERROR_ECC_UNCORRECTABLE at ring.cu:7", "uncorrectable error (ECC)"),
        ("AcmeError: NCCL error 5 in ring.cpp:7", "NCCL failed and this line does not say why"),
        ("AcmeError: the write ended with errno: 28", "full"),
        ("AcmeError: open of the ring, RC: -13", "no right"),
        ("OSError: [Errno 24]", "open files"),
    ],
)
def test_a_bare_number_or_name_is_read_as_the_text_that_it_stands_for(line: str, said: str) -> None:
    assert said in of(line).get("cause", "")


def test_a_number_beside_its_text_is_not_read_twice() -> None:
    assert "full" not in of("OSError: [Errno 28] the strange ring").get("cause", "")


def test_used_up_mappings_of_peers_are_no_missing_peer_access() -> None:
    answer = of("RuntimeError: CUDA error: peer mapping resources exhausted")
    assert answer.get("signature") != "peer-access"
    assert "at most eight peers" in answer["cause"]
    lacks = of("RuntimeError: CUDA error: peer access is not supported between these two devices")
    assert lacks["signature"] == "peer-access"


@pytest.mark.parametrize(
    ("symbol", "of_what"),
    [
        ("cuGreenCtxDestroy", "NVIDIA's driver"),
        ("cublasLtFrobnicate", "another CUDA release"),
        ("nvmlFrobnicate", "library nvml"),
        ("_PyFrobnicate_New", "version of Python"),
        ("_ZN3c104cuda9SetDeviceEab", "another torch"),
    ],
)
def test_an_undefined_symbol_is_told_by_its_name(symbol: str, of_what: str) -> None:
    line = f"ImportError: /opt/venv/lib/acme/_C.abi3.so: undefined symbol: {symbol}"
    assert of_what in of(line)["cause"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-20 10:31:02,123 - INFO - autotuner.py:256 - flashinfer.jit: ninja: no work to do, "
        "cannot find cached cubin, downloading",
        "flashinfer.jit: ninja: no work to do, cannot find cached cubin, downloading",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module 580.65.06 - error containment not "
        "supported",
        'audit: type=1400 audit(1763634662.123:45): AVC apparmor="DENIED" operation="open" '
        'profile="snap.acme" name="/proc/7/mem" pid=7 comm="acme" permission denied',
        "building extension with gcc -Werror -DTORCH_FAIL_FAST=1",
        "loading the kernel module of the page cache; the former one could not be found",
    ],
)
def test_a_healthy_last_line_gets_no_cause_for_a_word_in_it(line: str) -> None:
    assert "cause" not in of("loading", line)


def test_a_last_line_whose_clause_says_what_failed_gets_its_cause() -> None:
    answer = of("loading", "acme: the ring is open; it could not load NVML, with no words of why")
    assert answer["cause"].startswith(f"{USUAL}NVIDIA's management library (NVML)")
    assert "cause" not in of("loading", "acme: the ring could not load; NVML is of release 12")


def test_a_last_line_that_names_what_the_compiler_lacks_gets_its_cause() -> None:
    answer = of("loading", "x86_64-linux-gnu-ld: cannot find -lacme")
    assert answer["cause"].endswith("does not find libacme.so where it looks")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "ValueError: the ring is one of ['a', 'b'], got 'c'",
            "the ring is one of ['a', 'b'], got 'c'",
        ),
        ("KeyError: 'no ring of acme here'", "no ring of acme here"),
        ("KeyError: \"no ring 'acme' of 'b'\"", "no ring 'acme' of 'b'"),
        ("ValueError: 'acme' is no ring of 'b'", "'acme' is no ring of 'b'"),
    ],
)
def test_quotes_of_a_value_at_the_end_stay(line: str, words: str) -> None:
    assert own_words.reason(line) == words
