"""Ten thousand prompts: every one answered once, in memory that does not grow with them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.emulators.chat_server import KEY, MODEL, ChatServer

pytestmark = pytest.mark.soak
TOKENS, CONCURRENCY = 20, 64
# Each prompt weighs as much as a page of text.
PAGE = "lorem ipsum " * 340


def sent(directory: Path, count: int, *more: str) -> tuple[float, float]:
    """Send so many prompts; return the sender's largest memory in MB and the seconds it took."""
    directory.mkdir()
    prompts, key = directory / "prompts.jsonl", directory / "key"
    with prompts.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"tag": f"t{number}", "prompt": f"say {TOKENS} {number} {PAGE}"}))
            file.write("\n")
    key.write_text(KEY)
    with ChatServer() as server:
        server.keep_bodies = False
        command = [sys.executable, "-m", "vllm_ansible.console", "send", prompts, "--json"]
        command += ["--url", server.url, "--model", MODEL, "--key-file", key]
        command += ["--concurrency", str(CONCURRENCY), *more]
        began, largest = time.monotonic(), 0.0
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sender:
            while sender.poll() is None:
                largest = max(largest, high_water(sender.pid))
                time.sleep(0.1)
            assert sender.stdout is not None
            found = json.loads(sender.stdout.read())
        seconds = time.monotonic() - began
        assert found["ok"]
        assert set(server.asked.values()) == {1}
        assert len(server.asked) == count
        assert server.most_in_flight <= CONCURRENCY
    output = directory / "prompts.answers.jsonl"
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["tag"] for one in records] == [f"t{number}" for number in range(count)]
    assert Counter(one["completion_tokens"] for one in records) == {TOKENS: count}
    print(f"{count} prompts {more}: {largest:.0f} MB, {seconds:.0f} s")
    return largest, seconds


def high_water(pid: int) -> float:
    """Return the most memory a process has had, in MB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), 0.0)


@pytest.mark.parametrize("more", [(), ("--no-stream",)], ids=["stream", "whole"])
def test_memory_does_not_grow_with_the_prompts(tmp_path: Path, more: tuple[str, ...]) -> None:
    few, _ = sent(tmp_path / "few", 1_000, *more)
    many, _ = sent(tmp_path / "many", 10_000, *more)
    # 9,000 more prompts weigh 36 MB, their answers another 3: what is kept of each is its tag.
    assert many - few < 12
    assert many < 120
