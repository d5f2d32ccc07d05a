"""Nothing that looks like a secret reaches the record, and figures are not mistaken for one."""

from __future__ import annotations

import pytest

from vllm_ansible.record.redact import redact, redact_text


@pytest.mark.parametrize(
    "text",
    [
        "ansible-playbook site.yml -e vllm_api_key=swordfish",
        "ansible-playbook site.yml -e 'hf_token=\"swordfish\"'",
        'ansible-playbook site.yml -e \'{"vllm_api_key": "swordfish", "x": 1}\'',
        "vllm serve --api-key swordfish --port 8000",
        "RAY_AUTH_TOKEN=swordfish ray start",
        "api-key: swordfish",
        "Authorization: Bearer swordfish.1234",
        "ansible_password='swordfish'",
        "ansible-playbook site.yml -e ansible_become_pass=swordfish",
    ],
)
def test_a_secret_is_hidden_and_its_name_stays(text: str) -> None:
    assert "swordfish" not in redact_text(text)
    assert "<hidden>" in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "GPU KV cache size: 12736 tokens, max_tokens=32",
        "the Ray token: another one than the head's",
        "RAY_AUTH_TOKEN_PATH=/opt/secrets/ray_token",
        "vllm serve --max-num-batched-tokens 2048",
        "warm_pass_count=3, bypass=yes",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_hub_token_is_known_by_its_shape() -> None:
    assert redact_text("header hf_abcdefghijklmnopqrstuv rejected") == "header <hidden> rejected"


def test_values_are_hidden_by_their_name_at_any_depth() -> None:
    values = {"engines": [{"api_key": "swordfish", "output_tokens_per_second": 12.5, "token": ""}]}
    assert redact(values) == {
        "engines": [{"api_key": "<hidden>", "output_tokens_per_second": 12.5, "token": ""}]
    }
