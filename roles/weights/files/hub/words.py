"""What a person needs to go on: what failed, at which address, how much of it."""

from __future__ import annotations

import re
import urllib.request
from urllib.parse import urlsplit

# What lets somebody in lies in files, and it is the stage prepare that carries them to hosts.
AGAIN = "run again with --tags prepare,weights"


class Failure(Exception):
    """What went wrong, in a sentence, with what was expected, found, where, and a fix."""

    def __init__(self, msg: str, **details: str) -> None:
        super().__init__(msg)
        self.details = details


def bare(url: str) -> str:
    """Return an address without user and password."""
    # A secret may hold a slash.
    return re.sub(r"//\S*@", "//", url)


def route_to(url: str) -> str:
    """Return an address and the proxy before it."""
    address = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(address.netloc.rpartition("@")[2]):
        return f"{bare(url)}, without a proxy"
    return f"{bare(url)}, through the proxy {bare(proxy)}"


def gib(size: float) -> str:
    """Return a size in words."""
    return f"{size / 2**30:.2f} GiB"
