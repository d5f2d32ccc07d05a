"""Stands for an engine's server, which needs a model: it answers once a file is there.

At SIGUSR1 it takes no more requests, finishes those it has, and ends, as vLLM does with vllm_guard;
at SIGTERM it drops them. What it does is a line each in a log.

python slow_server.py PORT DIRECTORY
python slow_server.py rank DIRECTORY
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIRECTORY = Path(sys.argv[2])


def say(words: str) -> None:
    with (DIRECTORY / "log").open("a") as log:
        log.write(f"{words}\n")


class Handler(BaseHTTPRequestHandler):
    """Answers in its own time."""

    def do_GET(self) -> None:
        say("asked")
        while not (DIRECTORY / "go").exists():
            time.sleep(0.1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answered")
        say("answered")


def serve(port: int) -> None:
    server = ThreadingHTTPServer(("", port), Handler)
    # Closing it waits for those that answer.
    server.daemon_threads = False

    def end(*_: object) -> None:
        say("asked to end")
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGUSR1, end)
    say("listens")
    server.serve_forever()
    server.server_close()
    say("the server has ended")


def follow() -> None:
    """Be what a server needs on another node."""

    def end(*_: object) -> None:
        say("the rank has ended")
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    say("follows")
    while True:
        signal.pause()


if __name__ == "__main__":
    follow() if sys.argv[1] == "rank" else serve(int(sys.argv[1]))
