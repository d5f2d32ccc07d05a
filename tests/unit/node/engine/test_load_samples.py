"""What /proc and /metrics say each second, and what samples of them come to."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.clone import wait_until
from vllm_ansible.node import launcher
from vllm_ansible.node.engine import compilation, load_samples
from vllm_ansible.node.process import background

# As vllm 0.32.0 writes it.
PAGE = """
vllm:num_requests_running{engine="0",model_name="m"} 8.0
vllm:num_requests_waiting{engine="0",model_name="m"} 24.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 24.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="40"} 1.0
"""
# Port 8000 (1F40): two servers' ends with bytes unsent and unread, a client's end with bytes
# unread, a listener, a closed one, and another port.
TCP = """
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 0100007F:C001 01 00000100:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:1F40 0100007F:C002 01 00000000:00000020 00:00000000 00000000     0        0 2
   2: 0100007F:C001 0100007F:1F40 01 00000000:00000040 00:00000000 00000000     0        0 3
   3: 00000000:1F40 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 4
   4: 0100007F:1F40 0100007F:C003 06 00000100:00000000 00:00000000 00000000     0        0 5
   5: 0100007F:1F41 0100007F:C004 01 00000100:00000000 00:00000000 00000000     0        0 6
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo: 900000    100    0    0    0     0          0         0   900000     100    0
  eth0: 1000       10    0    0    0     0          0         0     5000      20    0
"""


def row(second: float, **more: Any) -> dict[str, Any]:
    """Return a sample of an engine that is busy, at a second of a measurement."""
    gauges = {"running": 8.0, "waiting": 24.0, "usage": 0.95, "cache_tokens": 5120.0}
    nanoseconds = int(second * 1e9)
    return {
        "at": 100.0 + second,
        "gauges": {**gauges, **more.get("gauges", {})},
        # The API server runs half of the time, and waits for a processor for the other half.
        "threads": {
            "front_end": {"7": [nanoseconds // 2, nanoseconds // 2]},
            "client": {"9": [nanoseconds // 10, 0]},
        },
        "ticks": {"front_end": {"7": int(50 * second)}, "client": {"9": int(10 * second)}},
        "host": [int(150 * second), int(200 * second)],
        "sockets": {
            "server": 4,
            "server_unsent": 2,
            "server_unread": 0,
            "client": 4,
            "client_unread": 1,
        },
        "network": {"eth0": [int(1000 * second), int(9000 * second)]},
    }


def test_gauges_are_of_all_servers_and_nothing_where_one_does_not_answer() -> None:
    found = load_samples.gauges([PAGE, PAGE.replace("0.75", "0.5")])
    assert found == {"running": 16.0, "waiting": 48.0, "usage": 0.75, "cache_tokens": 2 * 5120.0}
    assert load_samples.gauges([PAGE, ""]) == {}
    assert load_samples.gauges([]) == {}


def test_connections_are_counted_at_both_ends() -> None:
    assert load_samples.sockets(TCP, 8000) == {
        "server": 2,
        "server_unsent": 1,
        "server_unread": 1,
        "client": 1,
        "client_unread": 1,
    }


def test_the_loopback_is_no_network() -> None:
    assert load_samples.network(NET) == {"eth0": [1000, 5000]}


@pytest.mark.parametrize(
    ("title", "yes"),
    [
        ("/e/bin/python /e/bin/vllm serve /models/m --port 8000", True),
        ("VLLM::APIServer_1", True),
        ("VLLM::EngineCore", False),
        ("VLLM::Worker_TP0", False),
        ("ray::RayWorkerProc.run", False),
    ],
)
def test_the_api_server_is_known_by_its_title(title: str, yes: bool) -> None:
    assert load_samples.answers(title) is yes


def test_samples_come_to_shares_of_time_and_rates() -> None:
    found = load_samples.summary([row(one) for one in range(5)], lambda _: 10_000.0)
    assert found["samples"] == 5
    assert (found["running_most"], found["waiting_mean"]) == (8.0, 24.0)
    assert (found["seats_full_share"], found["cache_full_share"]) == (1.0, 1.0)
    assert (found["front_end_busy"], found["client_busy"]) == (1.0, 0.1)
    assert (found["front_end_cpus"], found["client_cpus"]) == (0.5, 0.1)
    assert found["host_busy_share"] == 0.75
    assert (found["server_unsent_share"], found["client_unread_share"]) == (0.5, 0.25)
    assert (found["network_bytes_per_second"], found["network_used_share"]) == (9000, 0.9)
    assert found["engine_cpus"] is None


def test_seats_are_not_full_while_nothing_waits() -> None:
    rows = [row(one, gauges={"waiting": 0.0}) for one in range(5)]
    found = load_samples.summary(rows)
    assert (found["seats_full_share"], found["cache_full_share"]) == (0.0, 0.0)


def test_two_samples_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("".join(json.dumps(row(one)) + "\n" for one in range(9)) + '{"at": ')
    rows = load_samples.read(str(path), 103.5, 105.5)
    assert [one["at"] for one in rows] == [104.0, 105.0]
    assert load_samples.summary(rows)["running_most"] is None
    assert len(load_samples.read(str(path), None, None)) == 9
    assert load_samples.read(str(tmp_path / "none"), None, None) == []


@pytest.fixture
def burning(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that runs all the time, under the mark of a server's record."""
    record = tmp_path / "processes/chat-serve.json"
    program = "import sys\nwhile True: pass"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "vllm", "serve", "m"],
        env={launcher.MARKER: str(record)},
    )
    yield process
    process.kill()
    process.wait()


def test_a_thread_that_runs_or_waits_all_the_time_is_busy(
    tmp_path: Path, burning: subprocess.Popen[bytes], serve: Callable[..., Any]
) -> None:
    """However many others want its processor, too."""
    server = serve(lambda _: (200, PAGE))
    (tmp_path / "tasks").mkdir()
    watched = load_samples.Watched(
        cluster_dir=str(tmp_path),
        servers=("chat-serve",),
        urls=(server.url,),
        port=8000,
        task=str(tmp_path / "tasks/client.json"),
        rows=str(tmp_path / "rows"),
    )
    client = background.Command((sys.executable, "-c", "import time; time.sleep(600)"))
    background.start(str(tmp_path / "tasks"), "client", client)
    background.start(
        str(tmp_path / "tasks"), "samples", functools.partial(load_samples.follow, watched)
    )
    try:

        def sampled() -> list[dict[str, Any]]:
            rows = load_samples.read(watched.rows, None, None)
            if len(rows) < 5 or not rows[-5]["threads"]["client"]:
                return []
            # Who stops processes, as a debugger does, keeps this one from being busy for a moment.
            return rows if (load_samples.summary(rows[-5:])["front_end_busy"] or 0) > 0.8 else []

        rows = wait_until(sampled, 120, "samples")
    finally:
        background.stop(str(tmp_path / "tasks"), "samples")
        background.stop(str(tmp_path / "tasks"), "client")
    assert rows[0]["at"] <= time.monotonic()
    found = load_samples.summary(rows[-5:])
    assert found["front_end_busy"] > 0.8, rows
    assert found["client_busy"] < 0.5, rows
    assert found["running_most"] == 8.0


def test_a_log_that_grows_by_compilation_says_so(tmp_path: Path) -> None:
    log = tmp_path / "chat.log"
    log.write_text("INFO Starting torch.compile\n")
    record = {"engine": "chat", "log": str(log)}
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes/chat-serve.json").write_text(json.dumps(record))
    (tmp_path / "processes/other-serve.json").write_text(json.dumps({**record, "engine": "other"}))
    before = compilation.logs(str(tmp_path), "chat")
    assert before == {str(log): 28}
    with log.open("a") as file:
        file.write('INFO: 127.0.0.1 - "POST /v1/completions HTTP/1.1" 200 OK\n')
    assert compilation.since(before) == ""
    # As the log of an H200 had it: tests/data/h200-layouts.json.
    line = "WARNING Triton kernel JIT compilation during inference: fused_moe_kernel"
    with log.open("a") as file:
        file.write(f"{line}\n")
    assert compilation.since(before) == line
