"""Known failures are found by what they write, and healthy logs are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.record.diagnosis.match import KINDS, Signature, match, signatures

HEALTHY = (Path(__file__).parent / "data" / "healthy-vllm-cpu.log").read_text()
WITH_PATTERN = [signature for signature in signatures() if signature.pattern]

# As other releases word it, in threads that the signature names or that show the same line; values
# are ours. No pattern was changed to find them.
WORDINGS = [
    (
        "nats-unreachable",  # dynamo#3612
        "Exception: Failed to connect to NATS: IO error: Connection refused (os error 111). "
        "Verify NATS server is running and accessible.",
    ),
    (
        "etcd-unreachable",  # dynamo#1188
        'grpc request error: status: Unavailable, message: "tcp connect error: Connection refused '
        '(os error 111)", details: [] while creating primary lease',
    ),
    (
        "ucx-transport",  # ucx#8440
        "[gpu2:4711] pml_ucx.c:419  Error: ucp_ep_create(proc=0) failed: "
        "Destination is unreachable",
    ),
    (
        "chat-template-missing",  # vllm#39279
        "vllm.entrypoints.chat_utils.ChatTemplateResolutionError: As of transformers v4.44, "
        "default chat template is no longer allowed",
    ),
    (
        "tokenizer-unknown",  # moondream#242
        "Cannot instantiate Tokenizer from buffer: data did not match any variant of untagged "
        "enum ModelWrapper at line 12 column 3",
    ),
    (
        "nccl-library-older",  # returnn#1802
        "ImportError: /opt/venv/lib/torch/lib/libtorch_cuda.so: undefined symbol: ncclMemFree",
    ),
    (
        "cudnn-of-another-build",  # pytorch#80637
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, 1, 0) but "
        "linked against (8, 9, 7)",
    ),
    (
        "nccl-no-route",  # sglang#3820
        "gpu2:240:240 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to "
        "10.0.0.9<40001> returned 113(No route to host) errno 115(Operation now in progress)",
    ),
]


@pytest.mark.parametrize(("name", "line"), WORDINGS)
def test_the_wording_of_another_release_is_known(name: str, line: str) -> None:
    found = match(line)
    assert found
    assert found.id == name


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
