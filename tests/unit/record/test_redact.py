"""Nothing that looks like a secret reaches the record, and figures are not mistaken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.record import redact as module
from vllm_ansible.record.redact import learn_files, redact, redact_text, visible


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
        "EXEC HTTPS_PROXY=http://ann:swordfish@proxy:3128 python",
        "pip: https://ann:swordfish@index.example/simple failed",
        "MINIO_SECRET_KEY=swordfish",
        "aws_secret_access_key = swordfish",
        "aws_secret_access_key= swordfish",
        "non-default args: {'port': 8000, 'api_key': ['swordfish'], 'model': 'm'}",
        "non-default args: {'api_key': ['sword', 'swordfish']}",
        "Namespace(api_key=['swordfish'], port=8000)",
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
        "the rate of a token = 3 ms here",
        "http://127.0.0.1:8000/v1 and git@github.com:org/repo",
        "{'tokens': [1, 2, 3]}",
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


def test_a_list_of_keys_is_hidden_by_its_name() -> None:
    values = {"api_key": ["swordfish", "another"], "tokens": [1, 2]}
    assert redact(values) == {"api_key": "<hidden>", "tokens": [1, 2]}


def test_what_is_known_is_hidden_whatever_stands_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_known", set())
    (tmp_path / "api_key").write_text("0123456789abcdef\n")
    (tmp_path / "object").write_text(
        "[default]\nregion = us-east-1\naws_secret_access_key = sword/fish+1\n"
    )
    learn_files([tmp_path / "api_key", tmp_path / "object", tmp_path / "none"])
    told = redact_text("got x0123456789abcdefy, then (sword/fish+1)")
    assert told == "got x<hidden>y, then (<hidden>)"
    assert redact_text("[default] us-east-1") == "[default] us-east-1"
    assert redact({"any": ["0123456789abcdef"]}) == {"any": ["<hidden>"]}


def test_a_terminal_obeys_nothing_that_a_log_or_an_answer_holds() -> None:
    hostile = "a\x1b]0;owned\x07b\x1b[2Jc\rd\x9be\u202ef\tg\nh"
    shown = visible(hostile)
    assert shown == "a\\x1b]0;owned\\x07b\\x1b[2Jc\\x0dd\\x9be\\u202ef\tg\nh"
    # Our own: colours, and back to the first column.
    assert visible("\r\x1b[K\x1b[0;32mok\x1b[0m", own=True) == "\r\x1b[K\x1b[0;32mok\x1b[0m"
    assert visible("\x1b[2J\x1b]52;c;x\x07", own=True) == "\\x1b[2J\\x1b]52;c;x\\x07"
