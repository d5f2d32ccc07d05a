"""Models by name, and what everybody is answered who asks for something else."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.emulators.metered_engine import KEY

from .running import ALICE, HAPROXY, MOST_BODY, Running, client

MODELS = ("m", "org/größer model")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    clients = {
        "alice": client(ALICE),
        "bob": client("bob-key", models=("org/größer model", "gone")),
    }
    with Running(tmp_path_factory.mktemp("door"), clients=clients, models=MODELS) as one:
        yield one


def test_each_model_goes_to_its_engine_with_the_engines_own_key(running: Running) -> None:
    for model, engine in zip(MODELS, running.engines, strict=True):
        before = len(engine.bodies)
        status, text, _ = running.chat(model=model, messages=[{"role": "user", "content": '}"'}])
        assert (status, json.loads(text)["model"]) == (200, model)
        assert len(engine.bodies) == before + 1
        assert engine.keys[-1] == f"Bearer {KEY}"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
def test_these_paths_reach_an_engine(running: Running, path: str) -> None:
    assert running.ask("POST", path, {"model": "m"})[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "nix"}, 404, "model_not_found"),
        ({"model": 'a"\n'}, 400, "model_missing"),
        ({"messages": []}, 400, "model_missing"),
        ({"model": ["m"]}, 400, "model_missing"),
        ("", 400, "invalid_request"),
        ("[1]", 400, "invalid_request"),
        ('{"model": "m"', 400, "invalid_request"),
        ('{"p": [' + "[]," * 60_000 + '1], "model": "m"}', 400, "invalid_request"),
        ('{"model": "m"} {}', 400, "invalid_request"),
        ('{"model": "m", "model": "n"}', 400, "invalid_request"),
        ('{"model": "m", "mod\\u0065l": "n"}', 400, "invalid_request"),
        ('{"model": "m", "stream": "true"}', 400, "invalid_request"),
        ('{"model": "m", "stream": true, "stream_options": 7}', 400, "invalid_request"),
        ('{"model": "m"}'.encode("utf-16"), 400, "invalid_request"),
    ],
)
def test_what_names_no_model_that_is_served_is_refused_in_openais_form(
    running: Running, body: object, status: int, code: str
) -> None:
    before = [len(engine.bodies) for engine in running.engines]
    found, text, headers = running.ask("POST", "/v1/chat/completions", body)
    error = json.loads(text)["error"]
    assert (found, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert headers["content-type"] == "application/json"
    assert [len(engine.bodies) for engine in running.engines] == before


@pytest.mark.parametrize("text", ['"', "\\", "\\\\", '\\"', '"model": "x"}', "[{", "\n", "ö\u0000"])
def test_no_text_of_a_prompt_is_taken_for_what_stands_around_it(
    running: Running, text: str
) -> None:
    for body in (
        {"prompt": text, "deep": [{text: text}, text], "model": "m"},
        {text + "x": [text], "model": "m", "prompt": text},
    ):
        engine = running.engines[0]
        status, told, _ = running.ask("POST", "/v1/completions", body)
        # A name with an escape is refused, whatever it is.
        escaped = "\\" in json.dumps(text) and len(body) == 3 and "deep" not in body
        assert status == (400 if escaped else 200), told
        if status == 200:
            assert engine.bodies[-1] == body


def test_a_slash_may_be_escaped(running: Running) -> None:
    status, _, _ = running.ask(
        "POST", "/v1/completions", '{"model": "org\\/größer model"}'.encode()
    )
    assert status == 200


@pytest.mark.parametrize("key", ["", "wrong", KEY, ALICE + "x"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/nowhere"])
def test_without_a_key_of_a_client_nothing_is_answered_but_401(
    running: Running, key: str, path: str
) -> None:
    method = "POST" if path.endswith("completions") else "GET"
    status, text, _ = running.ask(method, path, {"model": "m"} if method == "POST" else None, key)
    assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")


def test_a_client_uses_and_sees_the_models_it_may(running: Running) -> None:
    assert running.code("bob-key", model="m") == (403, "model_not_allowed")
    assert running.code("bob-key", model="org/größer model") == (200, "")
    for key, wanted in ((ALICE, list(MODELS)), ("bob-key", [MODELS[1]])):
        listed = json.loads(running.ask("GET", "/v1/models", key=key)[1])
        assert listed["object"] == "list"
        assert [one["id"] for one in listed["data"]] == wanted
    one = running.ask("GET", "/v1/models/m")
    assert (one[0], json.loads(one[1])["id"]) == (200, "m")
    assert running.ask("GET", "/v1/models/m", key="bob-key")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/metrics", 404),
        ("POST", "/tokenize", 404),
        ("POST", "/v1/chat/../../tokenize", 404),
    ],
)
def test_other_paths_and_methods_stay_behind_the_door(
    running: Running, method: str, path: str, status: int
) -> None:
    body = {"model": "m"} if method == "POST" else None
    assert running.ask(method, path, body)[0] == status


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_body_of_all_that_is_allowed_arrives_whole_and_a_longer_one_is_refused(
    running: Running, stream: bool, chunked: bool
) -> None:
    """The model comes last, as OpenAI's client writes it."""
    engine = running.engines[0]
    empty = json.dumps({"prompt": "", "stream": stream, "model": "m"})
    for length in (MOST_BODY, MOST_BODY + 1):
        text = "x" * (length - len(empty))
        body = json.dumps({"prompt": text, "stream": stream, "model": "m"}).encode()
        before, connection = len(engine.bodies), running.connect()
        status = 413
        # The answer to what is too long may be lost while the rest is still being sent.
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            sent = iter([body[:1000], body[1000:]]) if chunked else body
            headers = {"Authorization": f"Bearer {ALICE}"}
            connection.request("POST", "/v1/completions", sent, headers)
            answer = connection.getresponse()
            status, found = answer.status, answer.read()
            if status != 200:
                assert json.loads(found)["error"]["code"] == "413"
        connection.close()
        whole = length == MOST_BODY
        assert (status, len(engine.bodies) - before) == ((200, 1) if whole else (413, 0))
        if whole:
            assert engine.bodies[-1]["prompt"] == text


def test_health_needs_no_key(running: Running) -> None:
    assert running.ask("GET", "/health", key="")[0] == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_an_older_tls_is_refused_and_the_certificate_is_the_given_one(running: Running) -> None:
    def version(wanted: ssl.TLSVersion) -> str | None:
        context = ssl.create_default_context(cafile=str(running.directory / "tls.crt"))
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = wanted
        connection = running.connect()
        connection._context = context  # type: ignore[attr-defined]
        connection.connect()
        found: str | None = connection.sock.version()
        connection.close()
        return found

    assert version(ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert version(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises(ssl.SSLError, match=r"(?i)alert.protocol.version"):
            version(old)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl, which speaks HTTP/2")
@pytest.mark.parametrize(("key", "status"), [(ALICE, "200"), ("wrong", "401")])
def test_http2_is_spoken_and_its_clients_read_refusals(
    running: Running, tmp_path: Path, key: str, status: str
) -> None:
    header = tmp_path / "header"
    header.write_text(f"Authorization: Bearer {key}\n")
    done = subprocess.run(
        [
            *("curl", "-s", "--http2", "--cacert", str(running.directory / "tls.crt")),
            *("-H", f"@{header}", "-w", "\n%{http_version} %{http_code}", "-d", '{"model": "m"}'),
            f"https://127.0.0.1:{running.port}/v1/completions",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.rpartition("\n")[2] == f"2 {status}"


def test_no_engine_of_a_model_is_503_with_a_time_to_come_back(
    door: Callable[..., Running],
) -> None:
    running = door(models=("m", "n"))
    running.engines[1].end()
    found = [running.chat(model="n") for _ in range(2)][-1]
    assert (found[0], found[2]["retry-after"]) == (503, "5")
    assert json.loads(found[1])["error"]["message"] == "no engine of this model answers"
    assert running.ask("GET", "/health", key="")[0] == 200
    assert running.code() == (200, "")
