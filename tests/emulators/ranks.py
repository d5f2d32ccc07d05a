"""Stand-ins for the processes of an engine: titles as vLLM gives them, and a server with counts.

    python ranks.py --port 8000 --ranks 2

A rank is a process of its own that sleeps, called `VLLM::Worker_TP0` and so on. The server has the
paths of vLLM that a watchdog reads; a token takes `step` seconds and counts. `POST /set` changes
`step` and `hung` (nothing is computed any more; /health still says 200, as vLLM's does). With
`--hangs-without WORD` it hangs from its start unless that word is among its arguments.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

KEY = "key"
SLEEP = "import time\nwhile True: time.sleep(1)"


class Engine:
    """What the server knows."""

    def __init__(self) -> None:
        self.step, self.hung, self.code = 0.01, False, 200
        # How many requests run, and how many whoever looked last was told of.
        self.running = self.told = 0
        self.tokens = 0
        self.lock = threading.Lock()

    def token(self) -> None:
        """Compute one token, one at a time."""
        deadline = time.monotonic() + self.step
        while self.hung or time.monotonic() < deadline:
            time.sleep(0.01)
        with self.lock:
            self.tokens += 1

    def metrics(self) -> str:
        name = '{engine="0",model_name="m"}'
        self.told = self.running
        return (
            f"vllm:num_requests_running{name} {float(self.told)}\n"
            f"vllm:generation_tokens_total{name} {float(self.tokens)}\n"
        )


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        engine: Engine = self.server.engine
        text = engine.metrics() if self.path == "/metrics" else json.dumps(engine.told)
        self.tell(200, text)

    def do_POST(self) -> None:
        engine: Engine = self.server.engine
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/set":
            vars(engine).update(body)
            return self.tell(200, "{}")
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.tell(401, "{}")
        if engine.code != 200:
            return self.tell(engine.code, '{"error": "EngineDeadError"}')
        engine.running += 1
        for _ in range(body["max_tokens"]):
            engine.token()
        engine.running -= 1
        return self.tell(200, json.dumps({"usage": {"completion_tokens": body["max_tokens"]}}))

    def tell(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hangs-without", default="")
    wanted, others = parser.parse_known_args()
    for rank in range(wanted.ranks):
        # As setproctitle shows it: the first word of the command line.
        argv = [f"VLLM::Worker_TP{rank}", "-c", SLEEP]
        subprocess.Popen(argv, executable=sys.executable)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", wanted.port), Page)
    server.daemon_threads = True
    server.engine = Engine()  # type: ignore[attr-defined]
    server.engine.hung = bool(wanted.hangs_without) and wanted.hangs_without not in others
    print(os.getpid(), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
