"""End a cluster's machines when they have been rented for long enough, or have cost enough.

A process of its own on the controller, for nobody may be there when a run has failed at night:

    python -m vllm_ansible.provision.meter FILE

FILE holds the inventory's variables and is read again at every look, so that a limit can be raised;
it names the file of the API key and never holds the key. The process ends with the last machine, or
when FILE is gone. One runs for each cluster; another one ends at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import files
from .ending import end_all
from .fleet import GONE
from .lambda_cluster import LambdaCluster
from .lambda_settings import Settings, settings
from .limits import seconds_left, spent

LOOK_SECONDS = 60.0
ENDING_SECONDS = 600.0
SOURCE = Path(__file__).resolve().parents[2]


def watch(file: Path, variables: Mapping[str, Any], wanted: Settings) -> bool:
    """See that a process watches the limits; return whether the inventory has any."""
    if wanted.max_cents is None and wanted.max_seconds is None:
        file.unlink(missing_ok=True)
        return False
    # Its own directory is another one.
    kept = {**variables, "lambda_api_key_file": str(wanted.key_file)}
    files.write(file, json.dumps(kept, sort_keys=True))
    log = os.open(file.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        subprocess.Popen(  # noqa: S603  argv built here, no shell
            [sys.executable, "-m", "vllm_ansible.provision.meter", str(file)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # It outlives the run that starts it.
            start_new_session=True,
        )
    finally:
        os.close(log)
    return True


def look(
    cluster: LambdaCluster,
    wanted: Settings,
    say: Callable[[str], None],
    reread: Callable[[], Settings],
) -> bool:
    """Look once, and end the machines where a limit is reached; return whether any are left.

    `reread` returns the settings as they are by then.
    """
    living = [one for one in cluster.machines() if one.status not in GONE]
    if not living:
        return cluster.is_busy()
    why = spent(cluster.ledger, wanted, time.time())
    if not why:
        return True
    with cluster.alone(say):
        # Whoever held the machines until now may have been given a higher limit.
        if not spent(cluster.ledger, reread(), time.time()):
            return True
        say(f"ending {len(living)} machines: {why}")
        done = end_all(cluster.fleet(), ENDING_SECONDS, say)
        cluster.machines()
    say(f"{len(done.ended)} machines ended, {len(done.left)} left")
    return bool(done.left)


def main(file: Path) -> None:
    """Look every minute until there is nothing to watch."""
    with file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        while file.exists():
            try:
                wanted = _read(file)
                cluster = LambdaCluster(wanted, file.parents[1])
                if not look(cluster, wanted, _say, lambda: _read(file)):
                    file.unlink(missing_ok=True)
                    return
                left = seconds_left(cluster.ledger, wanted, time.time())
            except Exception as error:
                # Whatever it is, giving up would let the machines cost on.
                _say(f"no look: {type(error).__name__}: {error}")
                left = None
            _sleep(file, LOOK_SECONDS if left is None else min(left, LOOK_SECONDS))


def _read(file: Path) -> Settings:
    return settings(json.loads(file.read_text()), str(file))


def _sleep(file: Path, seconds: float) -> None:
    """Wait for the next look, or for the file to go."""
    until = time.monotonic() + max(seconds, 1.0)
    while file.exists() and time.monotonic() < until:
        time.sleep(0.5)


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
