"""Requests of a client, one connection each, as the tests of the router send them."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any


def listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    key: str = "",
    name: str = "",
    timeout: float = 60,
) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of one request."""
    headers = {"Content-Type": "application/json", **({"X-Request-Id": name} if name else {})}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, text, {key.lower(): value for key, value in answer.getheaders()}
    finally:
        connection.close()
