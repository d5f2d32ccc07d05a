"""What users of a cluster read to reach its engines: addresses, names, the key, until when."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from vllm_ansible.plan.servers import servers

FILE = "endpoint.json"


def login() -> str:
    """Return how a laptop logs in to this machine, which is a login node."""
    return f"{getpass.getuser()}@{socket.getfqdn()}"


def tunnel(urls: Iterable[str], where: str) -> list[str]:
    """Return the command that brings endpoints to a laptop by way of the login node.

    Engines listen on the data plane, which the login node reaches and nobody outside does.
    """
    words = ["ssh", "-N"]
    for url in urls:
        parts = urlsplit(url)
        words += ["-L", f"{parts.port}:{parts.hostname}:{parts.port}"]
    return [*words, where]


def published(
    engines: Sequence[Mapping[str, Any]],
    addresses: Mapping[str, str],
    key_file: str,
    job: str,
    ends_at: int,
    where: str,
    drains_at: int = 0,
    routers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what the file holds; the key itself is not in it.

    `engines` are those of the plan, `addresses` those of the data plane by host, `ends_at` seconds
    since the epoch, 0 without a limit, `where` how a laptop logs in to the login node, `drains_at`
    when no more requests are taken, as `ends_at`, `routers` the addresses that stand before the
    ranks of engines, by name.
    """
    served = [_engine(engine, addresses, routers or {}) for engine in engines]
    urls = [url for one in served for url in one.get("urls", [one["url"]])]
    return {
        "engines": served,
        "api_key_file": key_file,
        "from_a_laptop": " ".join(tunnel(urls, where)),
        "job": job,
        "until": _time(ends_at),
        "drains_at": _time(drains_at),
    }


def _engine(
    engine: Mapping[str, Any], addresses: Mapping[str, str], routers: Mapping[str, str]
) -> dict[str, Any]:
    """Return how one engine is reached: by its router, else each data rank by its own address."""
    if engine["name"] in routers:
        url = f"{routers[engine['name']]}/v1"
        return {"name": engine["name"], "model": engine["served_name"], "url": url}
    urls = [f"http://{addresses[one.host]}:{one.port}/v1" for one in servers(engine)]
    found = {"name": engine["name"], "model": engine["served_name"], "url": urls[0]}
    return {**found, "urls": urls} if len(urls) > 1 else found


def _time(at: int) -> str | None:
    return datetime.fromtimestamp(at, UTC).isoformat() if at else None
