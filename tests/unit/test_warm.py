"""A module that is forked meets what one that is started meets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import warm

LOOK = """
import json, os, sys
found = [os.getcwd(), os.environ["WORD"], sys.argv, sys.path[0], os.umask(0), sys.executable]
print(json.dumps([*found, __name__, sys.stdin.read(), sorted(os.listdir("/proc/self/fd"))[:3]]))
print("said", file=sys.stderr)
sys.exit(3)
"""


def looked(python: str, directory: Path) -> tuple[int, list[object], str]:
    done = subprocess.run(
        [python],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "WORD": "given", warm.SOCKET: os.environ[warm.SOCKET]},
        umask=0o027,
        input=LOOK,
        capture_output=True,
        text=True,
        check=False,
    )
    found: list[object] = json.loads(done.stdout)
    return done.returncode, found, done.stderr


def test_what_a_process_is_given_it_has(tmp_path: Path) -> None:
    python, before = warm.python(), warm.used()
    forked, started = looked(python, tmp_path), looked(sys.executable, tmp_path)
    assert forked == started
    assert (forked[0], forked[1][4], forked[2]) == (3, 0o027, "said\n")
    assert warm.used() >= before > 0


def test_what_is_no_module_is_pythons_own(tmp_path: Path) -> None:
    told = subprocess.run([warm.python(), "-c", "print(6 * 7)"], capture_output=True, text=True)
    assert told.stdout == "42\n"
    # As for another user, who may not reach the server.
    away = {**os.environ, warm.SOCKET: str(tmp_path / "nobody")}
    alone = subprocess.run(
        [warm.python()], env=away, input="print(1)", capture_output=True, text=True
    )
    assert alone.stdout == "1\n"
