"""A Python for modules of plays that has imported already what each of them imports.

Half of what a small module costs is the start of Python and the import of Ansible's own half of a
module. A server forks a process for each module: it runs what Ansible sends, in the environment and
the directory, and with the open files, that it was given, and the module brings its own code in
Ansible's archive. Tests of units play so; molecule, labs and flows start every process anew.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests import killed

HERE = Path(__file__).parent
# Not with ANSIBLE in it, which tests take out of environments, nor VLLM_, which vLLM judges.
SOCKET = "WARM_PYTHON"


@cache
def server() -> subprocess.Popen[bytes]:
    """Start the server of this process; it ends with it."""
    directory = tempfile.mkdtemp(prefix="warm-")
    killed.remember(directory=directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    python = Path(directory, "python")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {HERE}/client.py "$@"\n')
    python.chmod(0o755)
    os.environ[SOCKET] = f"{directory}/socket"
    started = subprocess.Popen(
        [sys.executable, HERE / "server.py", os.environ[SOCKET]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert started.stdin and started.stdout
    atexit.register(started.stdin.close)
    assert started.stdout.readline() == b"ready\n"
    return started


def python() -> str:
    """Return the program; what is no module it hands to this Python."""
    server()
    return str(Path(os.environ[SOCKET]).with_name("python"))


def used() -> float:
    """Return the processor seconds of the server and of what it has forked."""
    if not server.cache_info().currsize:
        return 0.0
    fields = Path(f"/proc/{server().pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
