"""Ask a server that may be broken: its answer has a time and a size, however it comes."""

from __future__ import annotations

import functools
import http.client
import io
import time
import urllib.request
from typing import Any

# Log probabilities of a long answer, the state of thousands of nodes.
MOST_BYTES = 16 << 20


class _Within(io.RawIOBase):
    """Read a connection until its time or its bytes are over.

    The timeout of a socket is one of each read: a byte now and then would never meet it.
    """

    def __init__(self, connection: Any, stream: Any, seconds: float) -> None:
        super().__init__()
        self._connection, self._stream = connection, stream
        self._end, self._left = time.monotonic() + seconds, MOST_BYTES
        self._seconds = seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {self._seconds:g} seconds")
        if self._left <= 0:
            raise OSError(f"the answer has more than {MOST_BYTES} bytes")
        self._connection.settimeout(left)
        count = self._stream.raw.readinto(buffer) or 0
        self._left -= count
        return int(count)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer whose head and body are read within bounds."""

    def __init__(self, seconds: float, connection: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(connection, *arguments, **options)
        self.fp = io.BufferedReader(_Within(connection, self.fp, seconds))


class _Connection(http.client.HTTPConnection):
    """A connection with such answers."""

    def __init__(self, host: str, timeout: float, **options: Any) -> None:
        super().__init__(host, timeout=timeout, **options)
        self.response_class = functools.partial(_Response, timeout)  # type: ignore[assignment]


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)  # type: ignore[arg-type]


class _Here(urllib.request.HTTPRedirectHandler):
    """Take a redirect for the answer: urllib would carry the key to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def open_request(request: urllib.request.Request, timeout: float) -> Any:
    """Return the response to a request, without a proxy; it is read within the timeout.

    A redirect raises HTTPError as other refusals do.
    """
    # A proxy in the environment must not come between a host and its own data plane.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Handler, _Here)
    return opener.open(request, timeout=timeout)
