"""What an answer of the hub, or its absence, tells about asking again."""

from __future__ import annotations

import email.utils
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from huggingface_hub import get_session
from huggingface_hub.errors import HfHubHTTPError

TRANSIENT = (408, 429, 500, 502, 503, 504)
# The library changed its client (httpx, httpx2), and so what it raises.
BROKEN: Any = sys.modules[type(get_session()).__module__.partition(".")[0]].TransportError


class ShortAnswer(Exception):
    """An answer that ended well, and before the file did."""


def status_of(error: Any) -> int:
    """Return the status of an answer, 0 where an error is none."""
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def transient(error: BaseException) -> bool:
    """Return whether the same request may well succeed later."""
    if isinstance(error, HfHubHTTPError):
        # A signed address of the content network that ran out; the next request gets a new one.
        moved = status_of(error) == 403 and bool(error.response.history)
        return moved or status_of(error) in TRANSIENT
    return isinstance(error, (BROKEN, ShortAnswer))


def asked_delay(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds a server wants to be left alone, None where it does not say."""
    wanted, delays = headers.get("retry-after", ""), []
    if wanted.strip().isdigit():
        delays.append(float(wanted))
    elif wanted:
        with suppress(ValueError, TypeError):
            delays.append(email.utils.parsedate_to_datetime(wanted).timestamp() - time.time())
    spent = re.search(r'"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)', headers.get("ratelimit", ""))
    if spent:
        delays.append(float(spent.group(1)))
    return max(0.0, *delays) if delays else None
