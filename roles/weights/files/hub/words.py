"""What a person needs to go on: what failed, at which address, how much of it."""

from __future__ import annotations

import re
import urllib.request
from urllib.parse import urlsplit

from huggingface_hub import constants


class Failure(Exception):
    """What went wrong, in a sentence, with what was expected, found, where, and a fix."""

    def __init__(self, msg: str, **details: str) -> None:
        super().__init__(msg)
        self.details = details


def bare(url: str) -> str:
    """Return an address without user and password."""
    return re.sub(r"//[^/@]*@", "//", url)


def route() -> str:
    """Return the hub's address and the proxy before it."""
    address = urlsplit(constants.ENDPOINT)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all") or ""
    if not proxy or urllib.request.proxy_bypass(address.netloc.rpartition("@")[2]):
        return f"{bare(constants.ENDPOINT)}, without a proxy"
    return f"{bare(constants.ENDPOINT)}, through the proxy {bare(proxy)}"


def gib(size: float) -> str:
    """Return a size in words."""
    return f"{size / 2**30:.2f} GiB"
