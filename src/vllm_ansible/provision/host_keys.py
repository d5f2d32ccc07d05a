"""The host keys of rented machines: learnt once, when a machine is new, and held to after that."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import files

KINDS = "ed25519,ecdsa,rsa"
DOOR = re.compile(r"\[(.+)\]:(\d+)")
LOOK_SECONDS = 5.0
# Addresses that are asked at once.
AT_ONCE = 16

Scan = Callable[[str], list[str]]


def scan(door: str) -> list[str]:
    """Return the keys a host shows, each as kind and key; none while it does not answer.

    `door` is an address, or `[address]:port`.
    """
    address, port = door, []
    if moved := DOOR.fullmatch(door):
        address, port = moved[1], ["-p", moved[2]]
    if _has_proxy(address, port):
        return _through_proxy(address, port)
    return _keys(_run(["ssh-keyscan", "-T", "5", "-t", KINDS, *port, "--", address]))


def _has_proxy(address: str, port: Sequence[str]) -> bool:
    """Tell whether the user's configuration of ssh leads there by another host or a command.

    ssh-keyscan does not read it.
    """
    lines = [line.split() for line in _run(["ssh", "-G", *port, "--", address]).splitlines()]
    return any(
        words[0] in ("proxyjump", "proxycommand") and words[1] != "none"
        for words in lines
        if len(words) > 1
    )


def _through_proxy(address: str, port: Sequence[str]) -> list[str]:
    """Return the key that a host shows to ssh itself; nothing is run there.

    The options are those of the last connection: the proxy's own key is held to the user's files.
    """
    with tempfile.TemporaryDirectory() as directory:
        known = Path(directory) / "known_hosts"
        options = (
            "BatchMode=yes",
            "ConnectTimeout=5",
            "ControlPath=none",
            "PreferredAuthentications=none",
            "StrictHostKeyChecking=accept-new",
            "HashKnownHosts=no",
            "GlobalKnownHostsFile=/dev/null",
            f"UserKnownHostsFile={known}",
        )
        given = [word for one in options for word in ("-o", one)]
        _run(["ssh", *given, *port, "--", address, "true"])
        return _keys(known.read_text() if known.exists() else "")


def _run(command: Sequence[str]) -> str:
    """Return what a program prints; nothing where it takes too long."""
    try:
        done = subprocess.run(  # noqa: S603  argv built here, no shell
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            # No terminal to ask for a passphrase at.
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def _keys(text: str) -> list[str]:
    """Return kind and key of each line of known_hosts."""
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return sorted(" ".join(words[1:3]) for words in lines if len(words) >= 3)


class HostKeys:
    """The keys of one cluster's machines, by the machine's id: an address may be given again.

    `known_hosts` is what ssh reads; beside it lies the record it is written from.
    """

    def __init__(
        self,
        known_hosts: Path,
        scan: Scan = scan,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file, self._record = known_hosts, known_hosts.with_name("host-keys.json")
        self._scan, self._now, self._sleep = scan, now, sleep

    def learn(
        self,
        machines: Mapping[str, str],
        patience_seconds: float,
        stopped: Callable[[], bool] = lambda: False,
        beside: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Learn the keys of new machines and forget those of machines that are gone.

        `machines` has addresses, or `[address]:port`, by id; of those `beside` nothing is learnt
        or forgotten. Return the ids of those that showed no key in time; a key that is known is
        never learnt again, whatever the host shows.
        """
        known = self._read()
        kept = {
            one: {**known[one], "address": address or known[one]["address"]}
            for one, address in {**(beside or {}), **machines}.items()
            if one in known
        }
        missing = {one: address for one, address in machines.items() if one not in kept}
        until = self._now() + patience_seconds
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while missing:
                shown = zip(missing, pool.map(self._scan, missing.values()), strict=True)
                for one, keys in list(shown):
                    if keys:
                        kept[one] = {"address": missing.pop(one), "keys": keys}
                self._write(kept)
                if missing and (self._now() >= until or stopped()):
                    break
                if missing:
                    self._sleep(LOOK_SECONDS)
        self._write(kept)
        return sorted(missing)

    def follow(self, machines: Mapping[str, str]) -> None:
        """Keep what is known where machines answer now: an address or a port may have moved.

        Nothing is learnt, and nothing forgotten of a machine that is not listed for a moment.
        """
        known = self._read()
        moved = {
            one: {**kept, "address": machines.get(one) or kept["address"]}
            for one, kept in known.items()
        }
        if moved != known:
            self._write(moved)

    def _read(self) -> dict[str, dict[str, object]]:
        try:
            return dict(json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    def _write(self, kept: Mapping[str, Mapping[str, object]]) -> None:
        lines = [
            f"{one['address']} {key}\n" for one in kept.values() for key in _texts(one["keys"])
        ]
        for path, text in (
            (self._file, "".join(sorted(lines))),
            # After what ssh reads: a write that fails between both is made again by the next look.
            (self._record, json.dumps(kept, indent=1, sort_keys=True)),
        ):
            files.write(path, text)


def _texts(keys: object) -> Sequence[str]:
    return [str(key) for key in keys] if isinstance(keys, Iterable) else []
