"""A person opens the page over an SSH tunnel, as documented, and clicks; the engine is real."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.browser import CHROMIUM, Browser, key_digest
from tests.ports import free_port

REQUESTS, TOKENS = 8, 24
KEPT = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "."))


@pytest.fixture
def key(head: Host, cluster_dir: str) -> str:
    return str(head.file(f"{cluster_dir}/secrets/api_key").content_string).strip()


@pytest.fixture
def address(head: Host, data_addresses: dict[str, str]) -> Iterator[str]:
    """Return the page's address at this end of a tunnel to the head."""
    told = head.ansible.get_variables()
    port = free_port()
    forward = f"127.0.0.1:{port}:{data_addresses['lab1']}:8443"
    arguments = shlex.split(told["ansible_ssh_common_args"])
    identity = ["-i", told["ansible_ssh_private_key_file"], *arguments]
    place = f"{told['ansible_user']}@{told['ansible_host']}"
    command = ["ssh", "-N", "-L", forward, *identity, place]
    tunnel = subprocess.Popen(command)  # noqa: S603 what the lab's own inventory says
    deadline = time.monotonic() + 300
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert tunnel.poll() is None and time.monotonic() < deadline, "no tunnel"
            time.sleep(0.1)
    yield f"https://127.0.0.1:{port}/"
    tunnel.terminate()
    tunnel.wait()


@pytest.fixture
def page(head: Host, cluster_dir: str, address: str, tmp_path: Path) -> Iterator[Browser]:
    """Return a browser that trusts the certificate on the head, with the page open."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    certificate = head.check_output(f"cat {cluster_dir}/load_page/tls/*.crt")
    with Browser(tmp_path / "profile", key_digest(certificate.encode())) as browser:
        browser.open(address)
        yield browser


@pytest.fixture
def generated(
    plan: dict[str, Any],
    data_addresses: dict[str, str],
    ask: Callable[..., tuple[int, Any]],
) -> Callable[[], float]:
    """Return how many tokens the engine itself says that it has produced."""
    url = f"http://{data_addresses['lab1']}:{plan['ports']['api']}/metrics"

    def count() -> float:
        _, text = ask(url)
        lines = re.findall(r"^vllm:generation_tokens_total\{.*\} ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(map(float, lines))

    return count


def most_at_once(requests: list[dict[str, Any]]) -> int:
    """Return how many requests were in flight at the same time, by when they began and ended."""
    times = [(1000 * one["began_s"], 1) for one in requests]
    # The next one may begin in the very moment; both are rounded.
    times += [(1000 * one["began_s"] + one["total_ms"] - 0.1, -1) for one in requests]
    now, most = 0, 0
    for _, change in sorted(times):
        now += change
        most = max(most, now)
    return most


def test_a_load_test_by_clicking(
    name: str, page: Browser, key: str, generated: Callable[[], float], tmp_path: Path
) -> None:
    if name != "lab1":
        pytest.skip("the page is on the head")
    assert page.evaluate("isSecureContext && crossOriginIsolated")
    page.write("#key", key[:-1])
    page.click("#open")
    page.wait("document.querySelector('#message').innerText", 300)
    assert page.text("#message") == "this is not the key"
    page.write("#key", key)
    page.click("#open")
    page.wait("!door.checkVisibility()", 300)
    assert "smollm2-135m-instruct" in page.text("#engine")

    before = generated()
    fields = {"concurrency": 4, "requests": REQUESTS, "prompt-tokens": 64, "output-tokens": TOKENS}
    for field, value in fields.items():
        page.write(f"#{field}", str(value))
    page.click("#start")
    page.wait("document.querySelector('#stop').disabled", 300)
    assert page.text("#message") == "done"
    page.evaluate("scrollTo(0, 0)")
    page.picture(KEPT / "load_page.png")

    text = page.saved("#json", tmp_path, "json").read_text()
    assert key not in text
    found = json.loads(text)
    figures = found["figures"]
    assert (figures["answered"], figures["failed"]) == (REQUESTS, 0)
    assert figures["output_tokens"] == REQUESTS * TOKENS
    assert {one["completion_tokens"] for one in found["requests"]} == {TOKENS}
    assert most_at_once(found["requests"]) == fields["concurrency"]
    # Finding the length of the prompt takes one request of one token, or three.
    assert generated() - before - REQUESTS * TOKENS in (1, 3)
    # Words of the list are one token each for this model, but for what the chat puts around them.
    assert figures["prompt_tokens"]["mean"] == pytest.approx(64, abs=2)
    assert 0 < figures["ttft_ms"]["p50"] <= figures["ttft_ms"]["p99"] <= figures["ttft_ms"]["max"]
    # A browser that was given no time reads several tokens at once.
    assert figures["itl_ms"]["max"] > 0
    for one in found["requests"]:
        assert one["ttft_ms"] + sum(one["itl_ms"]) <= one["total_ms"]
    assert all(page.evaluate("[...document.querySelectorAll('article p')].map((p) => p.innerText)"))

    page.write("#output-tokens", "1500")
    page.click("#start")
    page.wait("Number(document.querySelector('[data-figure=tokens]').innerText) > 8", 600)
    page.click("#stop")
    page.wait("document.querySelector('#stop').disabled", 300)
    assert page.text("#message") == "stopped"
    # The engine itself has stopped: what nobody reads any more costs nothing.
    deadline, last = time.monotonic() + 300, -1.0
    while (now := generated()) != last:
        assert time.monotonic() < deadline, f"still producing after {now} tokens"
        last = now
        time.sleep(2)
    assert page.complaints == []
