"""The idle pump: while any rank works, every rank without a request is given short ones.

Some engines step all data ranks together or none, and a rank without a request does not step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from asking import Question, Silence
from probing import Probe
from sessions import sessions
from settings import Settings

LOOK_SECONDS = 0.02
# After a failure; doubled until it works again.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 8.0
PURPOSE = "idle-pump"


class Pump:
    """Keeps the ranks of one engine stepping, and counts what that takes."""

    def __init__(self, settings: Settings, probes: Mapping[str, Probe]) -> None:
        self.requests = dict.fromkeys(probes, 0)
        self.tokens = dict.fromkeys(probes, 0)
        self.failures = dict.fromkeys(probes, 0)
        self._settings = settings
        self._probes = probes
        self._changed = threading.Condition()
        self._busy: frozenset[str] = frozenset()

    def start(self) -> None:
        """Begin; no thread keeps the program alive."""
        threading.Thread(target=self._look, daemon=True).start()
        for name in self._probes:
            threading.Thread(target=self._push, args=(name,), daemon=True).start()

    def _look(self) -> None:
        """See again and again who works: for a client, or for our own question."""
        while True:
            counts = sessions(self._settings.stats_socket) or {}
            busy = frozenset(
                name
                for name, probe in self._probes.items()
                if probe.waiting or (name in counts and counts[name].now)
            )
            with self._changed:
                self._busy = busy
                self._changed.notify_all()
            time.sleep(LOOK_SECONDS)

    def _push(self, name: str) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._busy and name not in self._busy)
            if self._once(name):
                pause = FIRST_PAUSE_SECONDS
            else:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _once(self, name: str) -> bool:
        """Give one rank one request; tell whether it was answered."""
        rank, settings = self._probes[name].rank, self._settings
        self.requests[name] += 1
        question = Question(rank.address, rank.port, settings.silence_seconds)
        try:
            self.tokens[name] += question.complete(
                settings.model, settings.key, settings.pump_tokens, PURPOSE, self.requests[name]
            )
        except Silence:
            self.failures[name] += 1
            return False
        return True
