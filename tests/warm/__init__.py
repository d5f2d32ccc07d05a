"""A Python for modules of plays that has imported already what each of them imports.

Half of what a small module costs is the start of Python and the import of Ansible's own half of a
module. A server forks a process for each module: it runs what Ansible sends, in the environment and
the directory, and with the open files, that it was given, and the module brings its own code in
Ansible's archive. Tests of units play so; on hosts of the lab, and in flows, every process is
started anew.

Half of what a small play costs is the same for `ansible-playbook`. It reads its settings when it is
imported, so there is a server for each environment and directory that come again. Molecule finds it
by its name in PATH, from its third scenario on.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests import killed

HERE = Path(__file__).parent
# Not with ANSIBLE in it, which tests take out of environments, nor VLLM_, which vLLM judges.
SOCKET = "WARM_PYTHON"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
# What testinfra runs, and what molecule asks.
BESIDE = ("ansible-inventory", "ansible-config")
# What Ansible does not read when it is imported; a server has a home of its own, for its files.
PASSED_ON = (
    *("AWS_", "HF_ENDPOINT", "HOME", "PATH", "PYTEST_", "VLLM_ANSIBLE_"),
    *("XDG_CACHE_HOME", "XDG_RUNTIME_DIR", SOCKET),
)
# Each holds 60 MB.
MOST_SERVERS = 3
# How often a play must have come for another of its kind to be likely.
LIKELY = 3

Key = tuple[object, ...]
asked: Counter[Key] = Counter()
# The one that was used last is the last.
started: dict[Key, tuple[Path, subprocess.Popen[bytes]]] = {}
ended_used = 0.0
# Of those that start ansible-playbook by its name in PATH.
named: dict[Path, subprocess.Popen[bytes]] = {}


def serve(directory: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a server whose socket lies in a directory; it ends with this process."""
    server = subprocess.Popen(
        [sys.executable, HERE / "server.py", f"{directory}/socket", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )
    assert server.stdin and server.stdout
    atexit.register(server.stdin.close)
    assert server.stdout.readline() == b"ready\n"
    return server


def place(name: str, line: str, *more: str) -> str:
    """Return a directory with a program of one line, and more of the same line with their names."""
    directory = tempfile.mkdtemp(prefix="warm-")
    killed.remember(directory=directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for one in (name, *more):
        program = Path(directory, one)
        text = f"#!/bin/sh\n{line}\n".replace("DIRECTORY", directory).replace("NAME", one)
        program.write_text(text)
        program.chmod(0o755)
    return directory


@cache
def server() -> subprocess.Popen[bytes]:
    """Start the server of this process's modules."""
    directory = place("python", f'exec {sys.executable} -IS {HERE}/client.py "$@"')
    os.environ[SOCKET] = f"{directory}/socket"
    return serve(directory)


def python() -> str:
    """Return the program; what is no module it hands to this Python."""
    server()
    return str(Path(os.environ[SOCKET]).with_name("python"))


def playbook(
    environment: Mapping[str, str], directory: Path | str, program: str = PLAYBOOK.name
) -> Path:
    """Return the ansible-playbook to run there: the first times it is ansible-playbook itself.

    Signals do not reach what it runs, but for SIGKILL, with which that ends, too.
    program: it, or ansible-inventory.
    """
    global ended_used
    read = {name: value for name, value in environment.items() if not name.startswith(PASSED_ON)}
    # Where it looks for its settings, if it is not told.
    key: Key = ("" if "ANSIBLE_CONFIG" in read else str(directory), *sorted(read.items()))
    asked[key] += 1
    if key not in started:
        if asked[key] < LIKELY:
            return PLAYBOOK.with_name(program)
        if len(started) == MOST_SERVERS:
            _, last = started.pop(next(iter(started)))
            ended_used += _used(last)
            assert last.stdin
            last.stdin.close()
        client = f"exec {sys.executable} -IS {HERE}/client.py"
        line = f'{client} DIRECTORY/socket {PLAYBOOK.parent}/NAME "$@"'
        made = place(PLAYBOOK.name, line, *BESIDE)
        one = serve(made, str(PLAYBOOK), cwd=directory, env={**environment, "HOME": made})
        started[key] = Path(made), one
    started[key] = started.pop(key)
    return started[key][0] / program


def play(
    arguments: Sequence[str | Path],
    cwd: Path | str,
    env: Mapping[str, str],
    program: str = PLAYBOOK.name,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook, or ansible-inventory, to its end and return what it printed."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    words = [playbook(env, cwd, program), *arguments]
    return subprocess.run(words, cwd=cwd, env=env, text=True, check=False, **options)


def on_path() -> Path:
    """Return a directory for PATH, whose programs of Ansible are the real ones until served."""
    line = f'exec {sys.executable} -IS {HERE}/alike.py DIRECTORY {PLAYBOOK.parent}/NAME "$@"'
    return Path(place(PLAYBOOK.name, line, *BESIDE))


def serve_named(directory: Path, cwd: Path) -> None:
    """From now on serve there whoever has the environment of the one that was started last."""
    if directory in named:
        return
    settings = (directory / "asked.json").read_text()
    environment = {**os.environ, **json.loads(settings)}
    named[directory] = serve(str(directory), str(PLAYBOOK), cwd=cwd, env=environment)
    (directory / "settings.json").write_text(settings)


def used() -> float:
    """Return the processor seconds of the servers and of what they have forked."""
    servers = [*(one for _, one in started.values()), *named.values()]
    if server.cache_info().currsize:
        servers.append(server())
    return ended_used + sum(map(_used, servers))


def _used(one: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
