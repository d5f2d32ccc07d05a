"""Do work in children that are ended when their time is over, whatever it is that holds them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any, Callable, Iterator

# A child calls this with a name and a value for each result as it has it.
Tell = Callable[[str, Any], None]
Work = Callable[[Tell], None]
# From all together, once their time is over: one that never stops to write is late all the same.
SPARE_READS = 64
# How often it is looked whether a child has ended, 10 ms apart: one that ended by itself, and all
# together that were killed.
LOOKS, LOOKS_AT_KILLED = 1000, 500


def run_each(works: list[Work], seconds: float, foreseen: type[Exception]) -> list[dict[str, Any]]:
    """Run every work in a child of its own, all at once, and return what each told.

    A driver that hangs does not come back by itself, and a fault of one device ends the process
    that met it. `error` says why a child told less than it had to, `stage` where it was by then;
    an exception that was foreseen says it by itself, any other with its traceback.
    """
    children = [_fork(work, foreseen) for work in works]
    told: list[dict[str, Any]] = [{} for _ in works]
    texts = [b"" for _ in works]
    limit = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for number, (_, pipe) in enumerate(children):
            selector.register(pipe, selectors.EVENT_READ, number)
        # Who was given no time itself still takes what has come by then.
        spare = SPARE_READS
        while selector.get_map() and spare:
            left = limit - time.monotonic()
            ready = selector.select(max(0.0, left))
            if left <= 0:
                spare = spare - 1 if ready else 0
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                texts[key.data] += data
                if not data:
                    selector.unregister(key.fd)
        late = {key.data for key in selector.get_map().values()}
    for number in late:
        os.kill(children[number][0], signal.SIGKILL)
    at_killed = iter(range(LOOKS_AT_KILLED))
    for number, (child, pipe) in enumerate(children):
        os.close(pipe)
        for line in texts[number].splitlines(keepends=True):
            # A child that was ended may have been in the middle of its last line.
            told[number].update(json.loads(line) if line.endswith(b"}\n") else {})
        ended = _end(child, number in late, at_killed if number in late else iter(range(LOOKS)))
        if number in late:
            stage = told[number].get("stage", "start")
            told[number]["error"] = f"no answer within {seconds:g} seconds at {stage}; {ended}"
        elif not told[number].pop("done", False) and "error" not in told[number]:
            told[number]["error"] = f"the process that measured {ended}"
        if "error" not in told[number]:
            told[number].pop("stage", None)
    return told


def _fork(work: Work, foreseen: type[Exception]) -> tuple[int, int]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:

        def tell(name: str, value: Any) -> None:
            line = json.dumps({name: value}).encode() + b"\n"
            while line:
                line = line[os.write(writer, line) :]

        os.close(reader)
        try:
            work(tell)
        except Exception as error:
            said = str(error) if isinstance(error, foreseen) else traceback.format_exc()
            tell("error", said)
        tell("done", True)
        status = 0
    finally:
        # Nothing of the parent's runs twice: no exit handler, no flush of what it had buffered.
        os._exit(status)


def _end(child: int, killed: bool, looks: Iterator[int]) -> str:
    """Return in words how a child ended; wait from one look to the next, and look once more."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if killed:
                return "it was ended"
            code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            return f"was ended by signal {code}" if code else f"ended with {os.WEXITSTATUS(status)}"
        if next(looks, None) is None:
            # One that waits inside a driver can ignore even SIGKILL.
            return f"its process {child} does not even end when it is killed" if killed else "hangs"
        time.sleep(0.01)
