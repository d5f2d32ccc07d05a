"""EC2's API by boto3, which finds credentials and endpoints by itself, as every tool of AWS does.

boto3 asks again what was refused for coming too often or failed on the way. A launch is asked again
here, always with the same client token: EC2 carries out a token once, whatever is lost on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import boto3
import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from .fleet import ReplyLost

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 10, 60, 5
# Waits before a launch is asked again, in seconds.
WAITS = (1.0, 2.0, 4.0, 8.0)
# EC2 API error codes (EC2 API reference, "Error codes"); its service model names none.
NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
    }
)
TOO_MANY = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException"})
FAILED = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"})
# Who asks was not known: whether an earlier request was carried out is another question.
UNKNOWN = frozenset(
    {
        *("AuthFailure", "ExpiredToken", "RequestExpired", "InvalidClientTokenId"),
        *("NoCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
        *("SSOTokenLoadError", "UnauthorizedSSOTokenError", "PartialCredentialsError"),
    }
)
NOT_FOUND = ".NotFound"


class AwsError(Exception):
    """AWS refused, in its own words; `code` is its error's, or the name of an error of boto3."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        super().__init__(f"{operation}: {message} ({code})")
        self.operation, self.code, self.message = operation, code, message

    @property
    def decides(self) -> bool:
        """Tell whether it says that a launch, asked for again with its token, was not made."""
        return self.code not in TOO_MANY | UNKNOWN

    @property
    def is_gone(self) -> bool:
        """Tell whether what was asked about does not exist, or not yet everywhere."""
        return self.code.endswith((NOT_FOUND, ".Unknown", ".Malformed"))


class Unreachable(Exception):
    """No answer came, or none that can be understood."""


class AwsApi:
    """Requests of one region, each answered with data or with one kind of error."""

    def __init__(
        self, region: str, profile: str = "", sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._region, self._profile, self._sleep = region, profile, sleep
        self._clients: dict[str, Any] = {}

    def ask(self, operation: str, service: str = "ec2", **parameters: Any) -> dict[str, Any]:
        """Send one request; `operation` is boto3's name of it, such as describe_instances."""
        try:
            return dict(getattr(self._client(service), operation)(**parameters))
        except (ClientError, BotoCoreError) as error:
            raise _told(operation, error) from error

    def all(self, operation: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return everything that an operation lists, of all pages."""
        try:
            client = self._client("ec2")
            if not client.can_paginate(operation):
                return list(self.ask(operation, **parameters)[key])
            pages = client.get_paginator(operation).paginate(**parameters)
            return [one for page in pages for one in page.get(key, [])]
        except (ClientError, BotoCoreError) as error:
            raise _told(operation, error) from error

    def launch(self, wanted: Mapping[str, Any], fresh: bool = False) -> list[str]:
        """Launch machines and return their ids; raise ReplyLost where no answer ever came.

        `fresh` says that what it refers to was made a moment ago, and may not be known everywhere.
        """
        waits = iter(WAITS)
        while True:
            try:
                # Without boto3's own tries: that there is no capacity has the status of a failure.
                answer = self._client("ec2", attempts=1).run_instances(**wanted)
                return [str(one["InstanceId"]) for one in answer["Instances"]]
            except (ClientError, BotoCoreError) as error:
                told = _told("run_instances", error)
                lost = not isinstance(told, AwsError) or told.code in FAILED
                wait = next(waits, None) if lost or _passes(told, fresh) else None
                if wait is None:
                    raise (ReplyLost(str(told)) if lost else told) from error
            self._sleep(wait)

    def parameter(self, name: str) -> str:
        """Return the value of a parameter of Systems Manager."""
        answer = self.ask("get_parameter", "ssm", Name=name)
        return str(answer["Parameter"]["Value"])

    def tag(self, identities: Sequence[str], tags: Mapping[str, str]) -> None:
        """Give resources tags, in place of those of the same names."""
        self.ask("create_tags", Resources=list(identities), Tags=tag_list(tags))

    def _client(self, service: str, attempts: int = ATTEMPTS) -> Any:
        key = f"{service}:{attempts}"
        if key not in self._clients:
            config = Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": attempts},
                user_agent_extra="vllm-ansible",
            )
            self._clients[key] = session(self._region, self._profile).client(service, config=config)
        return self._clients[key]


def session(region: str, profile: str) -> Any:
    """Return a session of boto3 that reads credentials anew: who watches for days outlives some."""
    core = botocore.session.Session(profile=profile or None)
    core.register_component("data_loader", _models())
    return boto3.Session(botocore_session=core, region_name=region)


@cache
def _models() -> Any:
    """Return what reads the models of services: to read EC2's takes a second, once a process."""
    return botocore.loaders.create_loader()


def _passes(told: Exception, fresh: bool) -> bool:
    """Tell whether the same request may be answered later."""
    if not isinstance(told, AwsError):
        return False
    return told.code in TOO_MANY or (fresh and told.is_gone)


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of(listed: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of what EC2 lists."""
    return {str(one["Key"]): str(one["Value"]) for one in listed.get("Tags") or ()}


def named(name: str, *values: str) -> dict[str, Any]:
    """Return a filter of a list."""
    return {"Name": name, "Values": list(values)}


def seconds(moment: Any) -> float:
    """Return a time of boto3's as seconds since the epoch; 0 where there is none."""
    return moment.timestamp() if isinstance(moment, datetime) else 0.0


def _told(operation: str, error: Exception) -> AwsError | Unreachable:
    """Return one of the two kinds of errors."""
    if isinstance(error, ClientError):
        found = error.response.get("Error", {})
        return AwsError(operation, str(found.get("Code", "")), str(found.get("Message", "")))
    if isinstance(error, (ConnectionError, HTTPClientError)):
        return Unreachable(f"{operation}: {error}")
    # No credentials, no such profile, a request that the model of the service does not allow.
    return AwsError(operation, type(error).__name__, str(error))
