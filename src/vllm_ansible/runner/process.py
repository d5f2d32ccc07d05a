"""One ansible-playbook under ansible-runner, in a thread, from a private directory."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ansible_runner

from .. import terminal as console
from .request import Request

# An interrupted ansible-playbook ends its workers and connections in well under a second.
INTERRUPT_GRACE_SECONDS = 15.0
_IDENT = "run"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class AnsibleRun:
    """Start, watch and interrupt one ansible-playbook."""

    def __init__(self, request: Request, data_dir: Path) -> None:
        self.done = threading.Event()
        self.exit_code: int | None = None
        self._error = ""
        self._request = request
        self._data_dir = data_dir
        self._pid: int | None = None
        self._interrupted_at: float | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="ansible-playbook", daemon=True)

    @property
    def interrupted(self) -> bool:
        """Say whether the run was asked to stop."""
        return self._interrupted_at is not None

    def start(self) -> None:
        """Start ansible-playbook and return at once."""
        self._thread.start()

    def interrupt(self) -> None:
        """Ask ansible-playbook to stop, as Ctrl-C would; ansible-runner kills it after a grace."""
        with self._lock:
            if self.interrupted or self.done.is_set():
                return
            self._interrupted_at = time.monotonic()
            self._press_ctrl_c()

    def stop(self) -> None:
        """Interrupt what still runs and wait until it is gone."""
        self.interrupt()
        self._thread.join()

    def forget_variables(self) -> None:
        """Remove the file of variables, which ansible-playbook reads before its first play."""
        self._variables_file.unlink(missing_ok=True)

    def output(self) -> str:
        """Return what ansible-playbook printed, from its first error on, without colours."""
        path = self._data_dir / "artifacts" / _IDENT / "stdout"
        printed = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        plain = _COLOURS.sub("", printed) + self._error
        lines = [line.strip() for line in plain.splitlines() if line.strip()]
        errors = [at for at, line in enumerate(lines) if line.startswith(("[ERROR]", "ERROR!"))]
        return "\n".join(lines[errors[0] :][:20] if errors else lines[-20:])

    def run_dir(self) -> Path | None:
        """Return where the run is recorded, once it is."""
        try:
            return Path(self._pointer.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    @property
    def _pointer(self) -> Path:
        return self._data_dir / "run_dir"

    @property
    def _variables_file(self) -> Path:
        return self._data_dir / "variables.json"

    def _work(self) -> None:
        try:
            runner = ansible_runner.interface.init_runner(
                private_data_dir=str(self._data_dir),
                ident=_IDENT,
                project_dir=str(self._request.checkout),
                playbook=self._request.playbook,
                inventory=[self._request.short_inventory()],
                limit=self._request.limit,
                tags=",".join(self._request.tags) or None,
                cmdline=self._options() or None,
                envvars=environment(self._request.checkout, self._pointer, os.environ),
                # How often ansible-runner looks whether it should cancel.
                settings={"pexpect_timeout": 0.5},
                # Any other name leaves the fact cache to ansible.cfg.
                fact_cache_type="",
                quiet=True,
                event_handler=self._see,
                cancel_callback=self._must_be_killed,
            )
            _, self.exit_code = runner.run()
        except Exception as error:  # ansible-runner raises many kinds; all are told to the caller
            self._error = f"\n[ERROR]: {type(error).__name__}: {error}"
        finally:
            with self._lock:
                self.done.set()

    def _options(self) -> str:
        """Write the variables where only we can read them: an argument is seen by every user."""
        options = ["--check"] if self._request.check else []
        if self._request.extra_vars:
            file = os.open(self._variables_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w", encoding="utf-8") as stream:
                json.dump(self._request.extra_vars, stream)
            options += ["-e", f"@{self._variables_file}"]
        return " ".join(options)

    def _see(self, event: Mapping[str, Any]) -> bool:
        """Learn the process id; our own record keeps the events, so ansible-runner need not."""
        with self._lock:
            if self._pid is None and isinstance(event.get("pid"), int):
                self._pid = event["pid"]
                if self.interrupted:
                    self._press_ctrl_c()
        return False

    def _press_ctrl_c(self) -> None:
        # Before the first event there is no process to ask yet, after the last one none any more.
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGINT)

    def _must_be_killed(self) -> bool:
        asked = self._interrupted_at
        return asked is not None and time.monotonic() - asked > INTERRUPT_GRACE_SECONDS


def environment(checkout: Path, pointer: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """Return what ansible-playbook needs in its environment so that the checkout's settings hold.

    ansible-runner puts itself before three of them: it replaces the stdout callback, sets the path
    of callback plugins, and turns host key checking off unless the environment speaks.
    """
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(checkout / "ansible.cfg")
    defaults = settings["defaults"] if settings.has_section("defaults") else {}
    enabled = [name.strip() for name in defaults.get("callbacks_enabled", "").split(",")]
    # The console script may be called by its path, with its environment not activated.
    beside_us = str(Path(sys.executable).parent)
    return {
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(
            [str(checkout / "callback_plugins"), str(Path(__file__).parent / "callbacks")]
        ),
        "ANSIBLE_CALLBACKS_ENABLED": ",".join(
            dict.fromkeys([*filter(None, enabled), "run_record", "run_pointer"])
        ),
        "ANSIBLE_HOST_KEY_CHECKING": outer.get(
            "ANSIBLE_HOST_KEY_CHECKING", defaults.get("host_key_checking", "True")
        ),
        "ANSIBLE_NOCOLOR": "1",
        "PATH": os.pathsep.join([beside_us, outer.get("PATH", os.defpath)]),
        # Progress is recorded as often as a terminal would show it.
        console.VARIABLE: console.TERMINAL,
        "VLLM_ANSIBLE_RUN_POINTER": str(pointer),
    }
