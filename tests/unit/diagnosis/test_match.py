"""Known failures are found by what they write, and healthy logs are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.diagnosis.match import KINDS, Signature, match, signatures

HEALTHY = (Path(__file__).parent / "data" / "healthy-vllm-cpu.log").read_text()
WITH_PATTERN = [signature for signature in signatures() if signature.pattern]


@pytest.mark.parametrize("signature", WITH_PATTERN, ids=lambda signature: signature.id)
def test_a_signature_finds_its_sample_before_any_other(signature: Signature) -> None:
    found = match(signature.sample, KINDS)
    assert found
    assert found.id == signature.id


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.id)
def test_a_signature_says_what_to_do(signature: Signature) -> None:
    assert signature.kind in KINDS
    assert len(signature.cause) > 20
    assert len(signature.fix) > 20
    assert (signature.pattern is None) == (signature.kind == "probe")


def test_names_are_unique_and_none_of_the_known_ones_is_lost() -> None:
    names = [signature.id for signature in signatures()]
    assert len(set(names)) == len(names)
    assert len(names) >= 42


@pytest.mark.parametrize("line", HEALTHY.splitlines())
def test_no_line_of_a_healthy_engine_is_taken_for_a_failure(line: str) -> None:
    assert match(line, KINDS) is None


def test_the_first_of_two_failures_in_a_text_wins() -> None:
    text = (
        "OSError: [Errno 28] No space left on device: 'x'\n"
        "OSError: [Errno 98] Address already in use"
    )
    found = match(text)
    assert found
    assert found.id == "disk-full"


def test_what_stands_in_healthy_logs_explains_no_failure() -> None:
    line = "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so), using internal implementation"
    assert match(line) is None
    assert match(line, kinds=("info",))


def test_the_wording_of_a_newer_safetensors_is_known() -> None:
    line = "SafetensorError: Error while deserializing header: incomplete metadata, file not"
    found = match(line)
    assert found
    assert found.id == "corrupt-safetensors"
