"""What an answer of the hub, or its absence, tells about asking again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from growing import ShortAnswer
from huggingface_hub import constants, get_session
from huggingface_hub.errors import HfHubHTTPError
from patience import TRANSIENT
from words import route_to

# The library changed its client (httpx, httpx2), and so what it raises.
BROKEN: Any = sys.modules[type(get_session()).__module__.partition(".")[0]].TransportError


def route() -> str:
    """Return the hub's address and the proxy before it."""
    return route_to(constants.ENDPOINT)


def status_of(error: Any) -> int:
    """Return the status of an answer, 0 where an error is none."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def headers_of(error: Any) -> Mapping[str, str]:
    """Return the headers of an answer, none where an error is none."""
    return error.response.headers if status_of(error) else {}


def transient(error: BaseException) -> bool:
    """Return whether the same request may well succeed later."""
    if isinstance(error, HfHubHTTPError):
        # A signed address of the content network that ran out; the next request gets a new one.
        moved = status_of(error) == 403 and bool(error.response.history)
        return moved or status_of(error) in TRANSIENT
    return isinstance(error, (BROKEN, ShortAnswer))


def ends_early(error: BaseException) -> bool:
    """Return whether an error says that there is no more of a file."""
    return isinstance(error, (ShortAnswer, HfHubHTTPError)) and status_of(error) in (0, 416)
