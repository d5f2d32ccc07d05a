"""Whether clients ask anything of the ranks, as HAProxy counts it."""

from __future__ import annotations

import threading
import time

from sessions import sessions

LOOK_SECONDS = 1.0


class Traffic:
    """Knows how long no client has asked; what the watch asks goes past HAProxy."""

    def __init__(self, stats_socket: str, quiet_seconds: float) -> None:
        self._stats_socket, self._quiet_seconds = stats_socket, quiet_seconds
        self._last = time.monotonic()

    def start(self) -> None:
        """Begin to look; the thread does not keep the program alive."""
        threading.Thread(target=self._look, daemon=True).start()

    @property
    def quiet(self) -> bool:
        """Tell whether nobody has asked for long; nobody knows while HAProxy does not answer.

        Never, where that time is 0.
        """
        if not self._quiet_seconds:
            return False
        # A look that finds a request renews this only as often as it looks.
        return time.monotonic() - self._last > max(self._quiet_seconds, 2 * LOOK_SECONDS)

    def _look(self) -> None:
        before = None
        while True:
            counts = sessions(self._stats_socket)
            if not counts or counts != before or any(one.now for one in counts.values()):
                self._last = time.monotonic()
            before = counts
            time.sleep(LOOK_SECONDS)
