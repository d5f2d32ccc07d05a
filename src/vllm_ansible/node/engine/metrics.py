"""Read what a server's /metrics page says, as Prometheus would; standard library only."""

from __future__ import annotations

import http.client
import re
import urllib.request

from .http_answer import open_request

LINE = re.compile(r"([\w:]+)(?:\{(.*)\})? ([-+.\deE]+)$")


def total(text: str, name: str, *labels: str) -> float:
    """Return the sum of a metric over its rows that carry these labels."""
    found = 0.0
    for line in text.splitlines():
        row = LINE.match(line)
        if row and row[1] == name and all(label in (row[2] or "") for label in labels):
            found += float(row[3])
    return found


def get(url: str, timeout: float) -> str:
    """Return what a page says, empty where nobody answers."""
    try:
        with open_request(urllib.request.Request(url), timeout) as response:  # noqa: S310 - http by plan
            return str(response.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException):
        return ""
