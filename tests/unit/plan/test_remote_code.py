"""Which command lines let a model's own code run, in all the forms that vLLM's parser takes."""

from __future__ import annotations

import pytest

from vllm_ansible.plan.remote_code import trusts_remote_code


@pytest.mark.parametrize(
    "arguments",
    [
        ["--trust-remote-code"],
        ["--trust_remote_code=True"],
        ["--max-model-len", "1024", "--trust-remote"],
        ["--trust_rem"],
        ["--tru"],
        ["--Trust-Remote-Code"],
        ["--config", "/etc/vllm.yaml"],
        ["--config=/etc/vllm.yaml"],
        ["--speculative-config", '{"model": "m", "trust_remote_code": true}'],
        ["--speculative-config.trust_remote_code", "true"],
    ],
)
def test_a_models_own_code_is_trusted(arguments: list[str]) -> None:
    assert trusts_remote_code(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--max-model-len", "1024", "--tensor-parallel-size", "2"],
        ["--no-trust-remote-code"],
        ["--no-trust_remote_code"],
        ["--compilation-config", '{"level": 3}', "--tokenizer-mode", "auto"],
        ["--", "m"],
        ["-tp", "2"],
    ],
)
def test_a_models_own_code_is_not_trusted(arguments: list[str]) -> None:
    assert not trusts_remote_code(arguments)
