"""What nginx makes of its configuration, before two engines of known pace, where nginx is here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import jinja2
import pytest

from tests.browser import CHROMIUM, Browser, key_digest
from tests.emulators.streaming import KEY, OBSERVER, ROLE, Engine
from tests.ports import free_port

from .watched import CLUSTER

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
MOST = 3
SILENCE = 6
NAMES = ("chat", "other")

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx on this machine")


def certificate(directory: Path) -> str:
    """Make a key and a certificate that signs itself; return the path of both without its end."""
    place = f"{directory}/tls"
    command = [
        *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=test"),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", f"{place}.key", "-out", f"{place}.crt"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> str:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def browser(tls: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser that trusts the certificate."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    trusted = key_digest(Path(f"{tls}.crt").read_bytes())
    with Browser(tmp_path_factory.mktemp("profile"), trusted) as made:
        yield made


@pytest.fixture
def engines() -> Iterator[dict[str, Engine]]:
    """Return two engines by name."""
    with Engine() as chat, Engine() as other:
        yield {"chat": chat, "other": other}


@pytest.fixture
def address(engines: dict[str, Engine], tls: str, tmp_path: Path) -> Iterator[str]:
    """Return where nginx listens with the role's own configuration."""
    assert NGINX is not None
    port = free_port()
    backends = [
        {"name": name, "model": f"model-{name}", "address": "127.0.0.1", "port": engine.port}
        for name, engine in engines.items()
    ]
    values: dict[str, Any] = {
        "cluster_name": "test",
        "site_host": {"service_user": "root" if os.geteuid() == 0 else ""},
        "load_page_run_dir": tmp_path,
        "load_page_dir": tmp_path,
        "load_page_watched_dir": tmp_path / "observe",
        "load_page_pages": ROLE / "files/page",
        "load_page_tls": tls,
        "load_page_listen": f"127.0.0.1:{port}",
        "load_page_backends": backends,
        # As -e gives it.
        "load_page_most_requests": str(MOST),
        # Longer than a starved machine keeps an engine of a second waiting.
        "load_page_silence_seconds": SILENCE,
    }
    # As Ansible renders it.
    shape = jinja2.Template((ROLE / "templates/nginx.conf.j2").read_text(), trim_blocks=True)
    (tmp_path / "nginx.conf").write_text(shape.render(values))
    listed = [{"name": one["name"], "model": one["model"]} for one in backends]
    (tmp_path / "engines.json").write_text(str(listed).replace("'", '"'))
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen([NGINX, "-c", f"{tmp_path}/nginx.conf"], stderr=log)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            said = (tmp_path / "log").read_text()
            assert server.poll() is None and time.monotonic() < deadline, said
            time.sleep(0.05)
    yield f"https://127.0.0.1:{port}/"
    server.terminate()
    server.wait()
    log.close()
    assert KEY not in (tmp_path / "log").read_text()


@pytest.fixture
def page(browser: Browser, address: str) -> Browser:
    """Return the browser with the page just loaded."""
    browser.open(address)
    return browser


def enter(page: Browser) -> str:
    page.write("#key", KEY)
    page.click("#open")
    page.wait("document.querySelector('#message').innerText || !door.checkVisibility()", 120)
    return page.text("#message")


def watched(directory: Path) -> None:
    """Have the stage observe watch the cluster, as far as nginx sees it."""
    observer = b64decode(OBSERVER).partition(b":")[2]
    digest = b64encode(sha1(observer).digest()).decode()  # noqa: S324 - the form of nginx
    files = {
        "secrets/htpasswd": f"observe:{{SHA}}{digest}\n",
        "page/cluster.json": json.dumps(CLUSTER),
    }
    for name, content in files.items():
        place = directory / "observe" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


def status(url: str, word: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": word})  # noqa: S310
    context = ssl._create_unverified_context()  # noqa: S323 - it signed itself
    try:
        with urllib.request.urlopen(request, timeout=120, context=context) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_cluster_is_seen_with_its_key_also_when_no_engine_answers(
    page: Browser, address: str, engines: dict[str, Engine], tmp_path: Path
) -> None:
    own = f"Basic {OBSERVER}"
    assert status(f"{address}cluster.json", own) == 403
    watched(tmp_path)
    other = f"Basic {b64encode(b'observe:' + KEY.encode()).decode()}"
    words = (own, other, f"Bearer {KEY}", "")
    assert [status(f"{address}cluster.json", one) for one in words] == [200, 401, 401, 401]
    for engine in engines.values():
        engine.close()
    assert enter(page) == "502: no engine answers, so nobody can be let in"
    assert page.text("[data-part=title]") == "Cluster r1"
    assert page.evaluate("door.checkVisibility() && !controls.checkVisibility()")


def run(page: Browser, **fields: int) -> str:
    for name, value in fields.items():
        page.write(f"#{name.replace('_', '-')}", str(value))
    page.click("#start")
    page.wait("document.querySelector('#stop').disabled", 120)
    return page.text("#message")


def figure(page: Browser, name: str) -> float:
    return float(page.text(f"[data-figure={name}]"))


def test_two_engines_are_offered_and_the_chosen_one_is_asked(
    page: Browser, engines: dict[str, Engine]
) -> None:
    assert enter(page) == ""
    assert page.text("#engine").split("\n") == ["chat (model-chat)", "other (model-other)"]
    for name in ("other", "chat"):
        page.evaluate(f"document.querySelector('#engine').value = '{name}'")
        assert run(page, concurrency=2, requests=2, prompt_tokens=1, output_tokens=3) == "done"
    # One of them, besides the two, has measured the prompt.
    for name, engine in engines.items():
        assert [one["model"] for one in engine.asked] == [f"model-{name}"] * 3
        assert {one["path"] for one in engine.asked} == {"/v1/chat/completions"}


def test_requests_above_the_limit_are_refused_with_its_number(
    page: Browser, engines: dict[str, Engine]
) -> None:
    assert enter(page) == ""
    # Long enough that all are in flight at once.
    engines["chat"].first_seconds = 1
    told = run(page, concurrency=MOST + 2, requests=MOST + 2, prompt_tokens=1, output_tokens=2)
    assert told == (
        "done; the first failure: 429: load_page_most_requests: no more than 3 are passed on at "
        "the same time"
    )
    assert (figure(page, "answered"), figure(page, "failed")) == (MOST, 2)
    assert len(engines["chat"].asked) == 1 + MOST


def test_an_engine_that_is_down_is_named_and_the_other_one_lets_in(
    page: Browser, engines: dict[str, Engine]
) -> None:
    engines["chat"].close()
    assert enter(page) == ""
    assert run(page) == (
        "nothing was sent: 502: the engine chat does not answer: it is down, or was silent for "
        f"{SILENCE} s"
    )
    page.evaluate("document.querySelector('#engine').value = 'other'")
    assert run(page, requests=2, output_tokens=2) == "done"
    engines["other"].first_seconds = 2 * SILENCE
    assert run(page).startswith("nothing was sent: the answer broke off")
    page.call("Page.reload")
    page.wait("document.readyState === 'complete' && door.checkVisibility()", 120)
    engines["other"].close()
    assert enter(page) == "502: no engine answers, so nobody can be let in"


def test_stop_ends_the_answers_in_the_engine(page: Browser, engines: dict[str, Engine]) -> None:
    assert enter(page) == ""
    for name, value in {"concurrency": MOST, "prompt-tokens": 1, "output-tokens": 5000}.items():
        page.write(f"#{name}", str(value))
    page.click("#start")
    page.wait("Number(document.querySelector('[data-figure=tokens]').innerText) > 10", 120)
    assert engines["chat"].given_up == 0
    page.click("#stop")
    deadline = time.monotonic() + 60
    while engines["chat"].given_up < MOST:
        assert time.monotonic() < deadline, f"{engines['chat'].given_up} were given up"
        time.sleep(0.05)
    assert page.text("#message") == "stopped"
