"""Whether a process watches the limits of a cluster, and how one comes to: now, and after a reboot.

The process is meter.py. Where the user has a systemd of their own, a unit stands by for it: it
takes over when the process is killed, and begins anew with the machine.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import files
from .fleet import GONE, Machine, cents_per_hour
from .price import dollars
from .provider import Settings

SOURCE = Path(__file__).resolve().parents[2]
# A Python process is up by then, also on a machine that is very busy.
START_SECONDS = 60.0
SYSTEMCTL_SECONDS = 30.0
LINGER = Path("/var/lib/systemd/linger")
STAND_BY = "--stand-by"
# What the process reads: the provider's name stands before it.
FILE = "-meter.json"
# In the place of the settings: there is nothing more to watch. It says so, for a file that is gone
# may be all that somebody deletes, and is shorter than any settings, for a disk may be full.
ENDED = "ended\n"


class NoWatcher(OSError):
    """No process watches the limits, although one was started for it."""


def watch(file: Path, variables: Mapping[str, Any], wanted: Settings) -> bool:
    """See that a process watches the limits; return whether the inventory has any."""
    if wanted.max_cents is None and wanted.max_seconds is None:
        end(file)
        return False
    # Its own directory is another one.
    kept = {**variables, **wanted.pinned()}
    files.write(file, json.dumps(kept, sort_keys=True))
    process = subprocess.Popen(  # noqa: S603  argv built here, no shell
        _command(file),
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # It outlives the run that starts it.
        start_new_session=True,
    )
    until = time.monotonic() + START_SECONDS
    while not (lived := lives(file)) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    # Where nothing is left to watch it has ended well, and has said so by removing its file.
    if not lived and not lives(file) and (process.poll() or file.exists()):
        raise NoWatcher(
            f"the process that watches max_hours and max_cost does not live{_status(process)}; "
            f"see {file.with_suffix('.log')}"
        )
    _stand_by(file)
    return True


def _status(process: subprocess.Popen[bytes]) -> str:
    status = process.poll()
    return "" if status is None else f" (status {status})"


def lives(file: Path) -> bool:
    """Tell whether a process watches: one that can make no lock holds what it reads instead.

    One whose lists have been refused for minutes holds neither.
    """
    return any(map(_is_held, (file.with_suffix(".lock"), file)))


def _is_held(path: Path) -> bool:
    try:
        with path.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def end(file: Path) -> None:
    """Have nobody watch any more: whoever does reads that it ends, and removes the file."""
    if not lives(file):
        file.unlink(missing_ok=True)
    elif file.exists():
        with file.open("r+") as handle:
            # Over what stands there, which takes no new room.
            handle.write(ENDED)
            handle.truncate(len(ENDED))
    else:
        files.write(file, ENDED)
    forget_unit(file)


def forget_unit(file: Path) -> None:
    """Have no unit stand by any more."""
    directory = _units()
    if not directory:
        return
    links = directory / "default.target.wants" / unit(file)
    if not links.is_symlink() and not (directory / unit(file)).exists():
        return
    # Not stopped: it may be the one that asks.
    with suppress(OSError, subprocess.SubprocessError):
        _systemctl("disable", unit(file))
    for path in (links, directory / unit(file)):
        with suppress(OSError):
            path.unlink(missing_ok=True)
    with suppress(OSError, subprocess.SubprocessError):
        _systemctl("daemon-reload")


def unwatched(file: Path, machines: Sequence[Machine], cloud: str) -> str:
    """Return what to say of machines that others have rented, or we under another name.

    What was kept of them may have ended with its container, and their watcher with it. None is
    started from here: it would end what may be somebody else's.
    """
    living = [one for one in machines if one.status not in GONE]
    if not living or lives(file):
        return ""
    owners = ", ".join(sorted({one.owner or "somebody" for one in living}))
    return (
        f"{len(living)} machines at {dollars(cents_per_hour(living))}, rented by {owners}; "
        f"no process here watches them; if they are yours, set {cloud}_owner to that, which "
        "has the next command watch them, or run playbooks/teardown.yml with it, which ends them"
    )


def revive(
    file: Path, machines: Sequence[Machine], variables: Mapping[str, Any], wanted: Settings
) -> str:
    """Have machines watched again that nobody watches; return what to say of it, if they were not.

    A process that was killed, a machine that was rebooted, a container that ended: none of them
    says so by itself.
    """
    living = [one for one in machines if one.status not in GONE]
    limited = wanted.max_cents is not None or wanted.max_seconds is not None
    if not living or not limited or lives(file):
        return ""
    seen = _last_look(file)
    since = f"since {time.strftime('%Y-%m-%d %H:%M', time.localtime(seen))}" if seen else "so far"
    log = file.with_suffix(".log")
    # As where each list was refused to it.
    since += f" (see {log})" if log.exists() else ""
    price = f"{len(living)} machines at {dollars(cents_per_hour(living))}"
    told = f"no process has watched max_hours and max_cost of {wanted.cluster} {since}: {price}"
    try:
        watch(file, variables, wanted)
    except OSError as error:
        return f"{told}; no watcher can be started: {error}; playbooks/teardown.yml ends them"
    return f"{told}; a watcher was started now. {after_reboot(file)}"


def after_reboot(file: Path) -> str:
    """Return who watches once this machine has been rebooted, or its container has ended."""
    directory = _units()
    if not directory or not (directory / unit(file)).exists():
        return "After a reboot here, the next command that uses the inventory starts it again"
    user = getpass.getuser()
    if not (LINGER / user).exists():
        return (
            f"After a reboot here, it starts when {user} logs in; at once after "
            f"`loginctl enable-linger {user}`"
        )
    return f"After a reboot here, systemd starts it: {unit(file)}"


def unit(file: Path) -> str:
    """Return the name of the unit that stands by."""
    digest = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    return f"vllm-ansible-limits-{file.parent.name}-{digest}.service"


def unit_text(file: Path) -> str:
    """Return the unit that stands by."""
    command = " ".join(_quoted(one) for one in (*_command(file), STAND_BY))
    return "\n".join(
        (
            "[Unit]",
            f"Description=End the machines of {file.parent.name} at max_hours and max_cost",
            "StartLimitIntervalSec=0",
            # Asked before each start: without them it could only fail, again and again.
            f"ConditionPathExists={_path(file)}",
            f"ConditionPathExists={_path(SOURCE / 'vllm_ansible/provision/meter.py')}",
            f"ConditionFileIsExecutable={_path(Path(sys.executable))}",
            "[Service]",
            f"Environment={_quoted(f'PYTHONPATH={SOURCE}')}",
            f"ExecStart={command}",
            "Restart=on-failure",
            "RestartSec=10",
            "[Install]",
            "WantedBy=default.target",
            "",
        )
    )


def _command(file: Path) -> list[str]:
    return [sys.executable, "-m", "vllm_ansible.provision.meter", str(file)]


def _quoted(word: str) -> str:
    for character in '\\"':
        word = word.replace(character, f"\\{character}")
    return '"' + word.replace("%", "%%").replace("$", "$$") + '"'


def _path(path: Path) -> str:
    """Return a path as a condition takes it: whole, without quotes."""
    return str(path).replace("%", "%%")


def _units() -> Path | None:
    """Return where the user's units lie; nothing where the user has no systemd that runs."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    if not (runtime / "systemd/private").exists():
        return None
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "systemd/user"


def _stand_by(file: Path) -> None:
    """Have a unit take over when the process is gone; without one the next command does."""
    directory = _units()
    if not directory:
        return
    try:
        text, path = unit_text(file), directory / unit(file)
        if not path.exists() or path.read_text() != text:
            files.write(path, text)
            _systemctl("daemon-reload")
        _systemctl("enable", "--now", "--no-block", unit(file))
    except (OSError, subprocess.SubprocessError):
        # after_reboot says that there is none.
        with suppress(OSError):
            (directory / unit(file)).unlink(missing_ok=True)


def _systemctl(*arguments: str) -> None:
    subprocess.run(  # noqa: S603  argv built here, no shell
        ["systemctl", "--user", *arguments],  # noqa: S607  on PATH as systemd is
        env={"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SYSTEMCTL_SECONDS,
        check=True,
    )


def _last_look(file: Path) -> float | None:
    try:
        return file.with_suffix(".lock").stat().st_mtime
    except OSError:
        return None
