"""A wish to stop comes through whenever a signal interrupts the thread that waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from vllm_ansible.runner.stop import stop

# A timer interrupts waits at any of their steps. With a lock in one of them, handlers wait for it
# and are interrupted in turn, until there is no more room for calls.
STORM = """
import signal
from vllm_ansible.runner.stop import stop

with stop() as wish:
    signal.signal(signal.SIGALRM, lambda *_: wish.set())
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    for _ in range(20000):
        wish.wait(0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(wish.is_set())
"""


def test_a_signal_in_the_middle_of_a_wait_is_no_deadlock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "True\n"


def test_a_wait_ends_with_the_wish_or_in_time() -> None:
    with stop() as wish:
        assert not wish.wait(0.01)
        threading.Timer(0.05, wish.set).start()
        began = time.monotonic()
        assert wish.wait(60)
        assert time.monotonic() - began < 30
        assert wish.is_set() and wish.wait(60)
