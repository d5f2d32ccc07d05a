"""Ask one rank for a token again and again, and look at its count while it does not answer."""

from __future__ import annotations

import threading
import time

from asking import Question, Silence
from awake import Awake
from settings import Rank, Settings
from standing import Standing
from traffic import Traffic

EVERY_SECONDS = 1.0
SOONER_SECONDS = 0.25
# Where ranks step together, one question lets all of them compute, for nobody while nobody asks.
SELDOM_SECONDS = 15.0
PURPOSE = "router-probe"


class Probe:
    """What is asked of one rank, in two threads: one asks and waits, the other looks and judges."""

    def __init__(self, settings: Settings, rank: Rank, traffic: Traffic, awake: Awake) -> None:
        self.rank = rank
        self.requests = 0
        self.tokens = 0
        self.down = ""
        self.known = False
        self._settings = settings
        self._traffic = traffic
        self._awake = awake
        self._standing = Standing()
        self._question: Question | None = None
        self._lock = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Tell whether a question waits for its answer."""
        return self._standing.asked_at is not None

    def start(self) -> None:
        """Begin; neither thread keeps the program alive."""
        for work in (self._ask, self._look):
            threading.Thread(target=work, daemon=True).start()

    def _ask(self) -> None:
        while True:
            # A busy rank may take long; who gives the question up is the other thread.
            question = Question(self.rank.address, self.rank.port, self._settings.silence_seconds)
            with self._lock:
                self._question = question
                self._standing.asked(self._awake.now())
            self.requests += 1
            try:
                self.tokens += question.complete(
                    self._settings.model, self._settings.key, 1, PURPOSE, self.requests
                )
            except Silence as silence:
                with self._lock:
                    self._standing.refused(str(silence))
            else:
                with self._lock:
                    self._standing.answered()
            self._judge()
            self._rest()

    def _rest(self) -> None:
        """Wait until the next question is due, which the first client's request brings forward."""
        began = time.monotonic()
        while True:
            well = not self.down and not self._standing.refusals
            pause = SELDOM_SECONDS if well and self._traffic.quiet else EVERY_SECONDS
            if self._standing.refusals == 1:
                pause = SOONER_SECONDS
            left = began + pause - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, SOONER_SECONDS))

    def _look(self) -> None:
        patience = self._settings.answer_seconds
        while True:
            time.sleep(patience / 10)
            asked_at = self._standing.asked_at
            if asked_at is None or self._awake.now() - asked_at < patience / 4:
                continue
            self._count(patience / 2)
            if self._judge() and self._awake.now() - asked_at > 2 * patience:
                # It may have come back as another process, which knows nothing of the question.
                self._give_up(asked_at)

    def _count(self, timeout: float) -> None:
        """Read the rank's count; a rank that does not tell it has not grown."""
        try:
            found = Question(self.rank.address, self.rank.port, timeout).progress()
        except Silence:
            return
        with self._lock:
            if self._standing.asked_at is not None:
                self._standing.counted(self._awake.now(), found)

    def _give_up(self, asked_at: float) -> None:
        with self._lock:
            if self._standing.asked_at == asked_at and self._question is not None:
                self._question.give_up()

    def _judge(self) -> str:
        with self._lock:
            self.down = self._standing.judge(self._awake.now(), self._settings.answer_seconds)
            self.known = self._standing.known
            return self.down
