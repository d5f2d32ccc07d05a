"""What an answer of object storage, or its absence, tells about asking again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ResponseStreamingError,
)
from growing import ShortAnswer
from patience import TRANSIENT
from urllib3.exceptions import HTTPError

# botocore passes some errors of urllib3 on as they are: of TLS, in the midst of a body.
BROKEN = (
    ConnectionError,
    HTTPClientError,
    HTTPError,
    IncompleteReadError,
    ResponseStreamingError,
)
# Said with 400 or 403, and over soon; SlowDown comes with 503.
BUSY = ("RequestTimeout", "RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown")


def code_of(error: Any) -> str:
    """Return the code that an answer gives its error, such as NoSuchKey; empty without one."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def status_of(error: Any) -> int:
    """Return the status of an answer, 0 where an error is none."""
    return int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def headers_of(error: Any) -> Mapping[str, str]:
    """Return the headers of an answer, none where an error is none."""
    return dict(_response(error).get("ResponseMetadata", {}).get("HTTPHeaders", {}))


def transient(error: BaseException) -> bool:
    """Return whether the same request may well succeed later."""
    if isinstance(error, ClientError):
        return status_of(error) in TRANSIENT or code_of(error) in BUSY
    return isinstance(error, (*BROKEN, ShortAnswer))


def ends_early(error: BaseException) -> bool:
    """Return whether an error says that there is no more of a file."""
    return isinstance(error, (ShortAnswer, ClientError)) and status_of(error) in (0, 416)


def _response(error: Any) -> Mapping[str, Any]:
    """Return what the library read of an answer, nothing where none came."""
    return error.response if isinstance(error, ClientError) else {}
