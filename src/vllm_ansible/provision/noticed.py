"""What `status` and every command say of machines that their provider ends by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_ansible.plan.servers import is_server

from .fleet import GONE, TAKEN, Machine

Processes = Mapping[str, Mapping[str, Any]]
SOON_SECONDS = 3600.0


def rows(looked: Mapping[str, Any], processes: Processes) -> list[str]:
    """Return one line for each notice that counts on a host.

    looked: what watchdog_info has returned of the watch for notices. processes: the recorded
    processes of the host.
    """
    return [f"drained: {_said(engine, one)}" for engine, one, _ in _current(looked, processes)]


def measurements(
    looked: Mapping[str, Any], processes: Processes, host: str
) -> list[dict[str, Any]]:
    """Return one measurement for each engine that is drained on a host."""
    return [
        {
            "what": f"engine {engine} on machines that stay",
            "ok": False,
            "expected": "no notice of the provider",
            "found": "; ".join([_said(engine, one), *servers]),
            "where": host,
            "fix": f"once {one['host']} has ended, run site.yml, which rents another machine; the "
            "other hosts keep their weights",
        }
        for engine, one, servers in _current(looked, processes)
    ]


def ends(
    title: str, notices: bool, cluster: str, machines: Sequence[Machine], now: float
) -> list[str]:
    """Return what is said before any stage of machines that end, or have ended, by themselves.

    notices: whether their hosts look for a notice and drain their engines.
    """
    drained = " within two minutes; its engines are drained" if notices else ""
    told = []
    living = {one.slot for one in machines if one.status not in GONE}
    for one in sorted(machines, key=lambda one: one.slot):
        name = f"{cluster}-{one.slot} ({one.id})"
        if one.status == TAKEN:
            told.append(f"{title} takes {name} back{drained}")
        elif one.status in GONE and one.lost and one.slot not in living:
            told.append(f"{name} was {one.lost}")
    ending = [one for one in machines if one.status not in GONE and one.ends_at]
    at = min((one.ends_at for one in ending), default=0.0)
    if at and at - now < SOON_SECONDS:
        clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
        left = f"in {(at - now) / 60:.0f} minutes" if at > now else "now"
        told.append(
            f"{title} ends {len(ending)} machines from {clock} on, {left}: its capacity "
            "block is over then"
        )
    return told


def _current(
    looked: Mapping[str, Any], processes: Processes
) -> Iterator[tuple[str, Mapping[str, Any], list[str]]]:
    """Yield engine, notice and what became of its servers, where the engine has not come back."""
    state = looked.get("state") or {}
    asked = state.get("servers") or {}
    for engine, notice in sorted((state.get("engines") or {}).items()):
        own = {name: one for name, one in asked.items() if is_server(engine, name)}
        back = [
            name
            for name, one in processes.items()
            if is_server(engine, name)
            and one.get("running")
            and one.get("pid") != own.get(name, {}).get("pid")
        ]
        if not back:
            yield engine, notice, [_became(name, one) for name, one in sorted(own.items())]


def _said(engine: str, notice: Mapping[str, Any]) -> str:
    clock = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(notice["at"]))
    return f"{engine}: {notice['cause']}, {notice['host']} ends at {clock}"


def _became(name: str, one: Mapping[str, Any]) -> str:
    if one["ended_at"]:
        return f"{name} finished its requests in {one['ended_at'] - one['asked_at']:.0f} s"
    return f"{name} finishes its requests"
