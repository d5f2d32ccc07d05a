"""Ask the server of one engine, and look at its counts, without ever waiting for it in the loop."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Optional

from ..awake import Awake
from .finding import HUNG, REFUSES, Finding
from .progress import REFUSALS, Progress
from .settings import Engine, Server

PURPOSE = "watchdog"
# What a server that is drained answers.
DRAINED = "HTTP 503"
LOOK_SECONDS = 2.0
# A question in a long queue is given up and asked anew: its engine counts meanwhile.
QUESTION_SECONDS = 900.0
# After a start, or in place of a server that is gone.
AGAIN_SECONDS = 5.0
COUNTS = re.compile(
    r"^(vllm:(?:generation_tokens_total|prompt_tokens_total|iteration_tokens_total_count"
    r"|request_success_total|kv_cache_usage_perc|gpu_cache_usage_perc|num_requests_running"
    r"|estimated_flops_per_gpu_total|num_preemptions_total)(?:\{[^}]*\})?) ([0-9.eE+-]+)",
    re.MULTILINE,
)
RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.eE+]+)", re.MULTILINE)
ASLEEP = re.compile(
    r'^vllm:engine_sleep_state\{[^}]*sleep_state="awake"[^}]*\} 0(?:\.0)?\s*$', re.MULTILINE
)
HUNG_FIX = (
    "read the stacks that were taken; playbooks/stop.yml and then playbooks/start.yml end the hang"
)


class Failed(Exception):
    """A server did not answer as it should, with why."""


def get(server: Server, path: str, seconds: float) -> tuple[int, str]:
    """Return status and text of a page; raise Failed without one."""
    connection = http.client.HTTPConnection(server.address, server.port, timeout=seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


class Watched:
    """The server of one engine: threads of its own ask and look, `judge` reads what they saw."""

    def __init__(
        self, engine: Engine, server: Server, patience: float, key_file: str, awake: Awake
    ) -> None:
        self.engine, self.server, self.key_file, self.awake = engine, server, key_file, awake
        self.progress = Progress(patience)
        self.asked = 0
        self._lock = threading.Lock()
        self._silent_since: Optional[float] = None

    def start(self) -> None:
        """Begin to look, and to ask where this host is the server's; nothing keeps the program."""
        threading.Thread(target=self._look_on, daemon=True).start()
        if self.server.local:
            threading.Thread(target=self._ask_on, daemon=True).start()

    @property
    def stage(self) -> str:
        """Return what the engine was doing when it was last seen."""
        return "serving" if self.progress.serving else "starting"

    def judge(self, busy: bool) -> Optional[Finding]:
        """Return why the engine does not work, None while it does."""
        now = self.awake.now()
        with self._lock:
            silent = self.progress.silence(now, busy)
            refused = self.progress.refusal if self.progress.refusals >= REFUSALS else ""
            serving, running = self.progress.serving, self.progress.running
        if not self.server.local or not (silent or (refused and serving)):
            self._silent_since = None
            return None
        if self._silent_since is None:
            self._silent_since = time.time() - silent
        where = f"http://{self.server.address}:{self.server.port}"
        hung = f"{self.engine.name} at {where} computes nothing: no token and no count moves"
        found = (
            f"{hung}, {running:g} requests running"
            if silent
            else f"{self.engine.name} at {where} fails: {refused}"
        )
        return Finding(
            key=f"{HUNG if silent else REFUSES} {self.engine.name}",
            kind=HUNG if silent else REFUSES,
            engine=self.engine.name,
            process=f"{self.engine.name}-serve",
            since=self._silent_since,
            found=found,
            fix=HUNG_FIX if silent else "vllm-ansible diagnose --logs DIRECTORY names the cause",
        )

    def _look_on(self) -> None:
        while True:
            self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Read the server's own counts once, or on another host whether it listens."""
        try:
            path = "/metrics" if self.server.local else "/health"
            status, text = get(self.server, path, 2 * LOOK_SECONDS)
        except Failed:
            return
        if not self.server.local:
            self.progress.serving = status == 200
            return
        found = COUNTS.findall(text) if status == 200 else []
        counts = "\n".join(" ".join(one) for one in found) if found else None
        running = sum(float(one) for one in RUNNING.findall(text))
        with self._lock:
            asleep = bool(ASLEEP.search(text))
            self.progress.looked(self.awake.now(), counts, running, asleep)

    def _ask_on(self) -> None:
        while True:
            with self._lock:
                wanted = self.progress.wants_question(self.awake.now())
            if wanted:
                self.ask()
            time.sleep(1.0)

    def ask(self) -> None:
        """Ask for one token once."""
        self.asked += 1
        with self._lock:
            self.progress.asked(self.awake.now())
        try:
            status, text = complete(self.server, self.key_file, str(self.asked), QUESTION_SECONDS)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._failed(error)
            return
        with self._lock:
            if status >= 500:
                self.progress.refused(self.awake.now(), f"HTTP {status}: {text[:200]}")
            else:
                # Also a refusal of what it does not serve: a server that judges requests lives.
                self.progress.answered(self.awake.now())
        if status >= 500:
            time.sleep(AGAIN_SECONDS)

    def _failed(self, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        with self._lock:
            if isinstance(error, socket.timeout):
                self.progress.asked_at = None
            elif self.progress.serving:
                self.progress.refused(self.awake.now(), why)
            else:
                self.progress.asked_at = None
        time.sleep(AGAIN_SECONDS)

    def ended(self) -> None:
        """Its process has ended, which says more than that nobody answers."""
        with self._lock:
            self.progress.restarted(self.awake.now())


def complete(server: Server, key_file: str, name: str, seconds: float) -> tuple[int, str]:
    """Ask a server for one token, by the name of a request; return status and text."""
    with open(key_file, encoding="utf-8") as handle:
        key = handle.read().strip()
    body: dict[str, Any] = {"model": server.served_name, "prompt": "hi", "max_tokens": 1}
    body |= {"temperature": 0, "user": PURPOSE}
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {key}",
        "X-Request-Id": f"{PURPOSE}-{name}",
    }
    connection = http.client.HTTPConnection(server.address, server.port, timeout=seconds)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        with suppress(OSError):
            connection.close()
