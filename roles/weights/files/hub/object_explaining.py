"""Turn what boto3 and the system raise into words that a person can act on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import (
    BotoCoreError,
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InfiniteLoopConfigError,
    InvalidConfigError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
from folder import full_disk
from object_answers import BROKEN, code_of, headers_of, status_of
from object_bucket import route, split
from patience import ATTEMPTS, TRANSIENT, asked_delay
from words import AGAIN, Failure, bare

FILE = "object_storage_credentials_file"
NONE = (
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InfiniteLoopConfigError,
    InvalidConfigError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)
HEADER = "Invalid header value"
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired")
WRONG = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure")
ELSEWHERE = (
    *("PermanentRedirect", "AuthorizationHeaderMalformed"),
    "IllegalLocationConstraintException",
)


def explain(error: Any, request: Mapping[str, Any]) -> Failure:
    """Turn what can go wrong into words; no secret is part of them."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, NONE):
        # What the library says of a file may quote it.
        return Failure(
            "there are no credentials for object storage",
            expected="a file of credentials, AWS_ variables, or a role of this host",
            found=type(error).__name__,
            where=os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "this host",
            fix=f"set {FILE} to a file of credentials, or give this host a role that may read; "
            f"{AGAIN}",
        )
    full = full_disk(error, request)
    if full:
        return full
    url, code, status = request["model"], code_of(error), status_of(error)
    bucket, _ = split(url)
    last = bare((str(error).strip().splitlines() or [""])[-1].strip())
    if HEADER in str(error):
        # The header is the token itself.
        last = HEADER
    told, source = f"{code or status}, with credentials from {origin()}", route()
    if code in EXPIRED:
        return Failure(
            "the credentials for object storage have expired",
            expected="credentials that are good for as long as the model takes to arrive",
            found=told,
            where=source,
            fix=f"write new ones into the file that {FILE} names, and {AGAIN}: it goes on",
        )
    if code in WRONG:
        return Failure(
            "object storage refused the credentials",
            expected="an access key that this store knows, and its secret",
            found=told,
            where=source,
            fix=f"put the right ones into the file that {FILE} names; check object_storage_endpoint"
            f" and the clock of this host; {AGAIN}",
        )
    if code == "RequestTimeTooSkewed":
        return Failure(
            "the clock of this host is not that of object storage",
            expected="clocks less than 15 minutes apart",
            found=code,
            where=source,
            fix="set the clock of this host (prepare can keep it: system_time)",
        )
    if code == "NoSuchBucket":
        return Failure(
            f"there is no bucket {bucket}",
            expected=f"the bucket of {url}",
            found=told,
            where=source,
            fix="check its spelling, object_storage_endpoint and object_storage_region",
        )
    if code in ELSEWHERE or status in (301, 307):
        return Failure(
            f"the bucket {bucket} is in another region",
            expected="the region of the bucket",
            found=told,
            where=source,
            fix="set object_storage_region",
        )
    if code == "InvalidObjectState":
        return Failure(
            f"objects of {url} are archived",
            expected="objects that can be read at once",
            found=code,
            where=source,
            fix="restore them, and run the stage weights again",
        )
    if status in (401, 403):
        return Failure(
            f"the credentials may not read {url}",
            expected=f"the right to list {bucket} (s3:ListBucket) and to read its objects "
            "(s3:GetObject)",
            found=told,
            where=source,
            fix=f"give them that right, or set other ones and {AGAIN}",
        )
    if status in TRANSIENT:
        asked = asked_delay(headers_of(error))
        return Failure(
            "object storage takes no more requests for now"
            if code == "SlowDown" or status == 429
            else "object storage is not well",
            expected=f"an answer within {request.get('attempts', ATTEMPTS)} attempts",
            found=f"{status} {code}" + (f", asking to wait {asked:.0f} s" if asked else ""),
            where=source,
            fix="run the stage weights again later, what is there is kept",
        )
    if isinstance(error, BROKEN):
        return Failure(
            f"{url} cannot be read: the connection to object storage fails",
            expected="object storage, reachable from this host",
            found=f"{type(error).__name__}: {last}",
            where=source,
            fix="check object_storage_endpoint, and proxy and AWS_CA_BUNDLE in sources_environment",
        )
    return Failure(
        f"{url} cannot be read",
        expected="answers of object storage, and a directory that can be written",
        found=f"{type(error).__name__}: {last}",
        where=source,
        fix="check object_storage_endpoint, object_storage_region and sources_environment",
    )


def origin() -> str:
    """Return where the credentials came from, and the file if it was one."""
    try:
        found = boto3.session.Session().get_credentials()
    except BotoCoreError as error:
        # What the library says of a file may quote it.
        return f"a configuration that cannot be used ({type(error).__name__})"
    if found is None:
        return "nowhere"
    if found.method == "shared-credentials-file":
        return os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return str(found.method)
