#!/usr/bin/env python3
"""What a router adds to an answer: time to the first token and processor time, beside a named peer.

.venv/bin/python benchmarks/router.py --requests 400

Two emulated ranks answer after 20 ms, then a token every 20 ms. Each way is asked in turn, several
rounds, so that other work on the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.emulators.data_rank import KEY as RANK_KEY
from tests.unit.router.running import CLIENT_KEY, Running, free_ports, listens, wait_until

STEP_SECONDS, TOKENS = 0.02, 5
NGINX = """
daemon off; pid {directory}/nginx.pid; error_log stderr warn; worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {directory}/b; proxy_temp_path {directory}/p;
    fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
    upstream ranks {{ least_conn; {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            if ($http_authorization != "Bearer {client}") {{ return 401; }}
            proxy_set_header Authorization "Bearer {rank}";
            proxy_http_version 1.1; proxy_set_header Connection "close"; proxy_buffering off;
            proxy_pass http://ranks;
        }}
    }}
}}
"""


def processor_seconds(pid: int) -> float:
    """Return what a process and its children have used."""
    ticks = 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, children)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def first_token(port: int, key: str, stream: bool, tokens: int = TOKENS) -> float:
    """Return seconds to the first piece of one answer, which is read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"model": "m", "prompt": "p", "max_tokens": tokens, "stream": stream})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    began = time.monotonic()
    connection.request("POST", "/v1/completions", body, headers)
    answer = connection.getresponse()
    answer.readline()
    took = time.monotonic() - began
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"status {answer.status} at port {port}")
    return took


def many(port: int, key: str, stream: bool, requests: int, clients: int) -> list[float]:
    """Return the seconds to the first piece of many answers, so many at the same time."""
    found: list[float] = []

    def work() -> None:
        for _ in range(requests // clients):
            found.append(first_token(port, key, stream))

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found


def nginx(directory: Path, ranks: Sequence[int]) -> tuple[int, subprocess.Popen[bytes]]:
    """Start the peer before the same ranks."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise SystemExit("nginx is not installed")
    (port,) = free_ports(1)
    servers = " ".join(f"server 127.0.0.1:{one} max_fails=0;" for one in ranks)
    told = {"directory": directory, "servers": servers, "port": port}
    text = NGINX.format(**told, client=CLIENT_KEY, rank=RANK_KEY)
    (directory / "nginx.conf").write_text(text)
    process = subprocess.Popen([program, "-c", f"{directory}/nginx.conf"])
    wait_until(lambda: listens(port))
    return port, process


def measure(requests: int, clients: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the figures of every way and kind of answer."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(Running(directory, ranks=2, step=STEP_SECONDS, slots=1000))
        port, peer = nginx(directory, running.rank_ports)
        stack.callback(peer.wait)
        stack.callback(peer.kill)
        ways = {
            "direct": (running.rank_ports[0], RANK_KEY, None),
            "HAProxy": (running.port, CLIENT_KEY, running.processes["haproxy"].pid),
            "nginx": (port, CLIENT_KEY, peer.pid),
        }
        figures: dict[str, dict[str, Any]] = {}
        for kind in ("whole", "stream"):
            times: dict[str, list[float]] = {name: [] for name in ways}
            used = dict.fromkeys(ways, 0.0)
            for _ in range(rounds):
                for name, (where, key, pid) in ways.items():
                    before = processor_seconds(pid) if pid else 0.0
                    times[name] += many(where, key, kind == "stream", requests // rounds, clients)
                    used[name] += processor_seconds(pid) - before if pid else 0.0
            for name in ways:
                figures[f"{kind}, {name}"] = {
                    "requests": len(times[name]),
                    "first_ms": 1000 * statistics.median(times[name]),
                    "processor_us": 1e6 * used[name] / len(times[name]),
                }
    return figures


def main() -> None:
    """Print the table of docs/router.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=800, help="of each way and kind")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    told = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {os.cpu_count()} cores, load {load:.1f}")
    print(f"command: {' '.join(['benchmarks/router.py', *sys.argv[1:]])}\n")
    figures = measure(told.requests, told.clients, told.rounds)
    print("| answer, way | requests | first piece, ms | of direct | processor time a request, us |")
    print("|---|---|---|---|---|")
    for name, one in figures.items():
        direct = figures[f"{name.partition(',')[0]}, direct"]["first_ms"]
        processor = f"{one['processor_us']:.0f}" if "direct" not in name else "-"
        ratio = f"{one['first_ms'] / direct:.2f}"
        cells = (name, one["requests"], f"{one['first_ms']:.1f}", ratio, processor)
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
