"""Drain the engines of this host before its provider ends the machine.

A process of the host looks every few seconds for a notice: EC2's metadata service announces a spot
interruption two minutes ahead, and the end of a capacity block is known from the start. From a
notice on, the servers refuse new requests and finish those they have; whatever stands before them
sees that at its next check. An engine over several hosts has one server: a host without it answers
with its notice at the engine's own port, where nothing else listens, and the server's host asks
there. Standard library only, Python 3.9.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from . import launcher
from .slurm.drain import catches
from .watchdog.snapshot import Snapshots

# As EC2's user guide recommends.
LOOK_SECONDS = 5.0
# A notice of another host counts until its machine is gone: what starts later has another one.
GONE_SECONDS = 60.0
ANSWER_SECONDS = 2.0
TOKEN_SECONDS = 21600
TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"
SPOT, BLOCK = "spot interruption", "end of the capacity block"
GREETING = b"vllm-ansible notice "
MOST_BYTES = 1024


@dataclass(frozen=True)
class Notice:
    """That the machine of a host ends `at` a time, in seconds since the epoch, and why."""

    host: str
    cause: str
    at: float


class Metadata:
    """EC2's metadata service, version 2: a token first, which every question shows."""

    def __init__(self, url: str) -> None:
        self._url, self._token = url, ""
        # Never through a proxy: it answers this machine alone.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def action(self) -> Optional[dict[str, str]]:
        """Return what EC2 is about to do with this machine, None without a notice."""
        for _ in range(2):
            try:
                self._token = self._token or self._ask(
                    TOKEN, "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                )
                text = self._ask(ACTION, "GET", {"X-aws-ec2-metadata-token": self._token})
                found: dict[str, str] = json.loads(text)
                return found
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401 or not self._token:
                    raise
                # It has expired.
                self._token = ""
        return None

    def _ask(self, path: str, method: str, headers: Mapping[str, str]) -> str:
        url, given = self._url + path, dict(headers)
        request = urllib.request.Request(url, method=method, headers=given)  # noqa: S310  http
        with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
            text: str = answer.read(MOST_BYTES).decode()
            return text


class Watch:
    """The looks of one host, and what has come of them. `settings` are those the role writes."""

    def __init__(self, settings: Mapping[str, Any], now: Callable[[], float] = time.time) -> None:
        self._settings, self._now = settings, now
        self._metadata = Metadata(settings["metadata"]) if settings["metadata"] else None
        self._snapshots = Snapshots(settings["cluster_dir"])
        self.own: Optional[Notice] = None
        self.error = ""
        # By engine, and by process.
        self.heard: dict[str, Notice] = {}
        self.asked: dict[str, dict[str, Any]] = {}

    def look(self) -> None:
        """Look once, drain what a notice is about, and keep what was found."""
        if self.own is None:
            self.own = self._notice()
            if self.own is not None:
                say(f"{self.own.cause}: {self.own.host} ends at {_clock(self.own.at)}")
                self._answer_others(self.own)
        for engine in self._settings["engines"]:
            name = str(engine["name"])
            notice = self.own or self._current(name) or self._of_others(engine)
            if notice is not None:
                if self.heard.get(name) != notice:
                    self.heard[name] = notice
                    say(f"{name}: {notice.cause} of {notice.host}, it is drained")
                self._drain(name)
        self._see_ended()
        self._keep()

    def _notice(self) -> Optional[Notice]:
        host, ends_at = self._settings["host"], self._settings["ends_at"]
        if ends_at and self._now() >= ends_at - self._settings["drain_seconds"]:
            return Notice(host, BLOCK, ends_at)
        if self._metadata is None:
            return None
        try:
            found, self.error = self._metadata.action(), ""
            return None if found is None else Notice(host, SPOT, _seconds(found.get("time", "")))
        # Whatever it answers, the look at other hosts goes on.
        except (OSError, ValueError, TypeError, AttributeError) as error:
            if str(error) != self.error:
                say(f"the metadata service: {error}")
            self.error = str(error)
            return None

    def _current(self, engine: str) -> Optional[Notice]:
        """Return what was heard of another host of an engine, while it counts."""
        notice = self.heard.get(engine)
        counts = notice is not None and self._now() < notice.at + GONE_SECONDS
        return notice if counts else None

    def _of_others(self, engine: Mapping[str, Any]) -> Optional[Notice]:
        """Return the notice of another host of an engine that is served from here."""
        if not (engine.get("server") or {}).get("local"):
            return None
        for peer in engine["peers"]:
            if (notice := ask(peer["address"], peer["port"])) is not None:
                return notice
        return None

    def _answer_others(self, notice: Notice) -> None:
        """Say it to who asks at the ports of engines that are served from elsewhere."""
        line = GREETING + json.dumps(asdict(notice)).encode() + b"\n"
        for engine in self._settings["engines"]:
            server = engine.get("server")
            if server and not server["local"]:
                try:
                    answer(self._settings["address"], server["port"], line)
                except OSError as error:
                    say(f"{engine['name']}: {server['host']} cannot be asked to finish: {error}")

    def _drain(self, engine: str) -> None:
        """Ask the servers of an engine to finish, each once, as node.slurm.drain does."""
        for name, pid in self._servers(engine).items():
            if self.asked.get(name, {}).get("pid") == pid:
                continue
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1 if catches(pid) else signal.SIGTERM)
                times = {"asked_at": self._now(), "ended_at": 0.0}
                self.asked[name] = {**launcher.identity(pid), **times}
                say(f"{name}: asked to finish")

    def _see_ended(self) -> None:
        for name, one in self.asked.items():
            if not one["ended_at"] and not launcher.alive(one["pid"], one["start_time"]):
                one["ended_at"] = self._now()
                say(f"{name}: has ended")

    def _servers(self, engine: str) -> dict[str, int]:
        """Return the servers of an engine that run here, by their recorded name."""
        # By /proc alone: the records are root's where a service has a user of its own.
        roots: dict[str, tuple[int, int]] = {}
        for pid, stat in launcher.process_table().items():
            name = self._snapshots.mark(pid)
            rank = name.partition(f"{engine}-serve")[2]
            if name == f"{engine}-serve{rank}" and (not rank or rank[1:].isdigit()):
                roots[name] = min(roots.get(name, (stat.start_time, pid)), (stat.start_time, pid))
        return {name: pid for name, (_, pid) in roots.items() if not _is_headless(pid)}

    def _keep(self) -> None:
        notices = {one: asdict(notice) for one, notice in self.heard.items()}
        state = {
            "at": self._now(),
            "own": asdict(self.own) if self.own else None,
            "engines": notices,
            "servers": self.asked,
            "error": self.error,
        }
        path = os.path.join(self._settings["state_dir"], "state.json")
        launcher.write_json(path, state, mode=0o644)


def ask(address: str, port: int) -> Optional[Notice]:
    """Return the notice that a host answers with at a port, None where it has none."""
    try:
        with socket.create_connection((address, port), ANSWER_SECONDS) as connection:
            connection.settimeout(ANSWER_SECONDS)
            text = b""
            while not text.endswith(b"\n") and len(text) < MOST_BYTES:
                if not (part := connection.recv(MOST_BYTES)):
                    break
                text += part
        if not text.startswith(GREETING):
            return None
        found = json.loads(text[len(GREETING) :])
        return Notice(str(found["host"]), str(found["cause"]), float(found["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def answer(address: str, port: int, line: bytes) -> socket.socket:
    """Send a line to everybody who connects, for as long as the program lives."""
    listener = socket.create_server((address, port))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(ANSWER_SECONDS)
                connection.sendall(line)

    threading.Thread(target=serve, daemon=True).start()
    return listener


def _is_headless(pid: int) -> bool:
    """Tell whether it only computes for the server of another host."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            return b"--headless" in handle.read().split(b"\0")
    except OSError:
        return True


def _seconds(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def say(words: str) -> None:
    """Write a line to the log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {words}", flush=True)


def main(path: str) -> None:
    """Look until somebody ends it."""
    with open(path, encoding="utf-8") as handle:
        settings = json.load(handle)
    os.makedirs(settings["state_dir"], mode=0o700, exist_ok=True)
    watch = Watch(settings)
    say("looks for a notice that this machine ends")
    while True:
        try:
            watch.look()
        except OSError as error:
            # A full disk, or a table of descriptors that is full: the next look may be better.
            say(f"this look failed: {error}")
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
