"""A program that is hard to end: it ignores SIGTERM and leaves daemons behind."""

import os
import signal
import sys
import time
from pathlib import Path

directory = Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for number, environment in enumerate([dict(os.environ), {}]):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            # One keeps its environment, one has lost it, like a program that overwrites its title.
            (directory / f"daemon{number}").write_text(str(os.getpid()))
            os.execve("/bin/sleep", ["sleep", "600"], environment)  # noqa: S606 argv, no shell
        os._exit(0)
    os.wait()
while not all((directory / f"daemon{number}").exists() for number in range(2)):
    time.sleep(0.01)
print("ready", flush=True)
(directory / "ready").touch()
time.sleep(600)
