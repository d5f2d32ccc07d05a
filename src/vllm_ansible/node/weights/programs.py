"""Run a program that comes as text, whole or in files, and talks in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional

from ..build_command import last_lines
from .safetensors import WeightsError

# Of a program in several files, the one that is run.
MAIN = "main.py"


class Program:
    """One program; each line of its output that is an object of JSON is a message."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], script: Optional[str] = None
    ) -> None:
        """Start it; script is its text, where command says that it comes over standard input.

        Without a script its standard input stays open, and ends when this process does, however.
        """
        self.command = list(command)
        self._process = subprocess.Popen(  # noqa: S603  argv built by the caller, no shell
            self.command,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._read = 0
        streams = ((self._process.stdout, self._lines), (self._process.stderr, self._errors))
        self._readers = [
            threading.Thread(target=_collect, args=one, daemon=True) for one in streams
        ]
        for reader in self._readers:
            reader.start()
        if self._process.stdin and script is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(script)
                self._process.stdin.close()

    @property
    def pid(self) -> int:
        """Return its number."""
        return self._process.pid

    def wait(self, seconds: float) -> bool:
        """Wait a moment; tell whether it has ended and all it said was read."""
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        for reader in self._readers:
            reader.join()
        return True

    def news(self) -> list[dict[str, Any]]:
        """Return the messages since the last call."""
        lines = self._lines[self._read :]
        self._read += len(lines)
        found = []
        for line in lines:
            with suppress(ValueError):
                said = json.loads(line) if line.startswith("{") else None
                if isinstance(said, dict):
                    found.append(said)
        return found

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def judge(self, what: str, where: str, failed: Optional[Mapping[str, Any]] = None) -> None:
        """Raise WeightsError where it failed, in its own words if it had any (`failed`)."""
        if self._process.returncode == 0:
            return
        if failed:
            raise WeightsError(str(failed["failed"]), **failed["details"])
        raise WeightsError(
            what,
            expected="exit status 0",
            found=last_lines("".join(self._errors)),
            where=where,
            command=" ".join(self.command),
            fix="read weights.log in the cluster's directory of tasks on this host",
        )


def write(directory: str, files: Mapping[str, str]) -> str:
    """Put the files of a program, text by name, into a directory and return the one to run."""
    os.makedirs(directory, exist_ok=True)
    for name, text in files.items():
        path = os.path.join(directory, os.path.basename(name))
        with open(f"{path}.new", "w", encoding="utf-8") as handle:
            handle.write(text)
        os.replace(f"{path}.new", path)
    return os.path.join(directory, MAIN)


def _collect(stream: Any, lines: list[str]) -> None:
    for line in stream:
        lines.append(line)
