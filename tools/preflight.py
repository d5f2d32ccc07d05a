"""Say in one line each what this machine lacks before anything is installed on it.

Runs under any Python 3, without f-strings, so that an old one is told, not tripped over.
"""

import ctypes.util
import os
import shutil
import sys

NEEDED_PYTHON = (3, 11)
NEEDED_GIB = 8


def problems(checkout):
    """Return one sentence for each thing that is missing, with the command that mends it."""
    found = []
    if sys.version_info[:2] < NEEDED_PYTHON:
        found.append(
            "Python 3.11 or later is needed, {} is {}.{}: install python3.11 and python3.11-venv, "
            "then: make PYTHON=python3.11".format(sys.executable, *sys.version_info[:2])
        )
    else:
        try:
            import ensurepip  # noqa: F401 - only whether it is there
        except ImportError:
            found.append("Python's venv is missing: apt-get install -y python3-venv")
    if shutil.which("git") is None:
        found.append("git is missing: apt-get install -y git")
    if ctypes.util.find_library("numa") is None:
        found.append("libnuma is missing (vLLM on CPU links it): apt-get install -y libnuma1")
    free = shutil.disk_usage(checkout).free / float(1 << 30)
    if free < NEEDED_GIB:
        found.append(
            "{:.1f} GiB are free in {}, {} are needed: free some space".format(  # noqa: UP032
                free, checkout, NEEDED_GIB
            )
        )
    return found


if __name__ == "__main__":
    lacking = problems(os.getcwd())
    for line in lacking:
        print("this machine is not ready: " + line, file=sys.stderr)
    sys.exit(1 if lacking else 0)
