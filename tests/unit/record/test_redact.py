"""Nothing that looks like a secret reaches the record, and figures are not mistaken for one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vllm_ansible.record import redact as module
from vllm_ansible.record.redact import learn_environment, learn_files, redact, redact_text, visible


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
        "Looking in indexes: https://swordfish@index.example/simple",
        "git+https://swordfish@code.example/org/repo",
        "http://ann:sword/swordfish@proxy:3128",
        "http://ann:sword?swordfish@proxy:3128",
        "http://ann:sword@swordfish@proxy:3128",
        "http://ann@org.example:swordfish@proxy:3128",
        "ftp://ann:sword@swordfish@files/a",
        "PASSWORD='two words swordfish'",
        'PASSWORD="two words swordfish" ./run',
        "secret_access_key: 'abc swordfish'",
        "  - secret_access_key: 'it''s a swordfish'",
        '{"api_key": "a\\"b swordfish"}',
        '{"msg": "{\\"api_key\\": \\"a b swordfish\\"}"}',
        "{'api_key': 'it\\'s a swordfish'}",
        "{'api_key': ['a]b', 'swordfish']}",
        "password='not closed swordfish",
        "https://s3.example/a?X-Amz-Date=1&X-Amz-Signature=swordfish&x=1",
        "https://blob.example/a?se=1&sig=swordfish",
        "https://s3.example/a?Expires=1&Signature=swordfish",
        "Authorization: AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=swordfish",
        "PGPASS=swordfish psql",
        "curl -H 'X-Api-Key: swordfish' http://h",
        'os.environ["HF_TOKEN"] = "swordfish"',
        "vllm serve --api-key 'two swordfish' --port 8000",
        '{"Credentials": {"SecretAccessKey": "swordfish/+", "SessionToken": "swordfish"}}',
        "aws_session_token=swordfish",
        "SecretAccessKey: swordfish",
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
        "write to ann.lee@org.example, or bob@org.example: both read it",
        "git@github.com:org/repo and ssh ubuntu@10.0.0.1 -p 22",
        "ssh://git@github.com/org/repo and git+ssh://git@code.example/a.git",
        "postgresql://ann@db/records",
        "https://docs.example/project/foo@1.0 and http://h:8000/simple/pkg@1.2",
        "docker://registry:5000/image@sha256:0123",
        "http://[::1]:8000/a@b",
        "nfs://filer:/export@snap and NFS4://filer:/export/a@b",
        "Basic authentication is not supported; Basic Abcdefgh too",
        "Authorization: required for all paths",
        "the sig=1 of a design, signature=(a, b)",
        "token: another one than the head's",
        "second pass: 3 of 4, pass=3",
        "'token' is no argument: 'a b'",
        '{"token": 5, "secret": null}',
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_name_and_a_password_in_one_word_are_hidden() -> None:
    # ann:swordfish
    assert redact_text("Proxy-Authorization: Basic YW5uOnN3b3JkZmlzaA==") == (
        "Proxy-Authorization: Basic <hidden>"
    )
    assert redact_text("sent Basic YW5uOnN3b3JkZmlzaA== to it") == "sent Basic <hidden> to it"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://ann:sw/rd@h:1/a?b=c", "http://ann:<hidden>@h:1/a?b=c"),
        ("nfs://ann:sword@filer/a@b", "nfs://ann:<hidden>@filer/a@b"),
        ("https://t0ken@h/simple, then b@c", "https://<hidden>@h/simple, then b@c"),
        ("PASSWORD='a b' then", "PASSWORD='<hidden>' then"),
        ('{"api_key": "a\\"b c", "x": "y"}', '{"api_key": "<hidden>", "x": "y"}'),
        ("a?sig=abc&x=1 b", "a?sig=<hidden>&x=1 b"),
        ("secret: 'a b'  # why", "secret: '<hidden>'  # why"),
        ("token=\nnext", "token=\nnext"),
        ("token='' x='y'", "token='' x='y'"),
    ],
)
def test_what_stands_around_a_secret_stays(text: str, left: str) -> None:
    assert redact_text(text) == left


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "a-", "a.", "token", "token=", "token=[", "token=['", "token='", "a=", "a=b ", " "),
        *("://", "a://b:c/", "a://b:c@", "a:b@", "--token ", "Authorization: ", "Basic YW5u", "\\"),
        *("'api_key': '\\", "'token: ", '"', "'", "?sig=", "-----BEGIN ", "bearer ", "a ", "\t= "),
        *("AKIAIOSFODNN7EXAMPLE ", "AKIA", "IQoJb3JpZ2lu", "rpa_", "gho_"),
        *("token=[\"']", "'token':'\\'", "sk-", "hf_", "password : ", "\n", "\n "),
    ],
)
def test_a_long_line_takes_a_time_that_grows_with_its_length(piece: str) -> None:
    line = (piece * (100_000 // len(piece))) + "!"
    started = time.process_time()
    redact_text(line)
    # Of a pattern that reads the rest of the line at each place, ten thousand million steps.
    assert time.process_time() - started < 5


def test_a_line_of_a_megabyte_is_read_in_seconds() -> None:
    piece = "a://b:c/d e=f 'token': 'g' --token h\\ token=[i] j: k@l?sig=m "
    started = time.process_time()
    told = redact_text(piece * (1_000_000 // len(piece)))
    assert time.process_time() - started < 15
    assert "'g'" not in told and "sig=m" not in told


def test_passwords_of_the_sources_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_known", set())
    learn_environment(
        {
            "PIP_INDEX_URL": "https://ann:sword%2Ffish@index.example/simple",
            "UV_INDEX_URL": "https://gl-token-1234@index.example/simple",
            "UV_INDEX_OWN_PASSWORD": "hook+line",
            "NO_PROXY": "localhost,10.0.0.0/8",
        }
    )
    told = redact_text("401 for (sword/fish), sword%2Ffish, gl-token-1234 and hook+line")
    assert told == "401 for (<hidden>), <hidden>, <hidden> and <hidden>"
    assert redact_text("localhost,10.0.0.0/8") == "localhost,10.0.0.0/8"


def test_a_hub_token_is_known_by_its_shape() -> None:
    assert redact_text("header hf_abcdefghijklmnopqrstuv rejected") == "header <hidden> rejected"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("AKIAIOSFODNN7EXAMPLE is not allowed to", "<hidden> is not allowed to"),
        # As a table of the console, a line of `aws configure export-credentials` or a log has them.
        ("AKIAIOSFODNN7EXAMPLE,wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "<hidden>"),
        ("('ASIAIOSFODNN7EXAMPLE', 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY')", "('<hidden>')"),
        ("AKIAIOSFODNN7EXAMPLE\nwJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n", "<hidden>\n"),
        ("AKIAIOSFODNN7EXAMPLE, then us-east-1", "<hidden>, then us-east-1"),
        ("with IQoJb3JpZ2luX2VjEJr0123456789/abcdef+A== of it", "with <hidden> of it"),
        ("header rpa_ABCDEFGHIJKLMNOPQRSTUVWXYZ012345 rejected", "header <hidden> rejected"),
        ("pulled with nvapi-abcdefghijklmnop-qrstuv_1", "pulled with <hidden>"),
        ("cloned by ghp_abcdefghijklmnopqrstuvwxyz0123456789", "cloned by <hidden>"),
        ("cloned by github_pat_abcdefghijklmnopqrstuvwxyz_0123", "cloned by <hidden>"),
    ],
)
def test_keys_of_providers_are_known_by_their_shape(text: str, left: str) -> None:
    assert redact_text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "the AKIA prefix, rpa_ and rpa_short",
        "sha1 356a192b7913b04c54574d18c28d46e6395428ab of ASIA",
        "RAKIAIOSFODNN7EXAMPLE1",
    ],
)
def test_what_only_begins_as_keys_of_providers_stays(text: str) -> None:
    assert redact_text(text) == text


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
