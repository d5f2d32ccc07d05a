"""Lambda's cloud API, version 1.10.0, as far as machines are rented with it.

One request a second and one launch every twelve, for all of our processes together. What was
refused for coming too often is asked again after the wait that the answer names; what failed on
the way is asked again where that can do no harm. A launch whose answer was lost is not: whether it
was carried out only the list of instances can tell (`ReplyLost`).
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .clock import Clock
from .fleet import ReplyLost

ENDPOINT = "https://cloud.lambda.ai/api/v1"
INTERVALS = {"request": 1.0, "launch": 12.0}
TIMEOUT_SECONDS = 30.0
# Waits after a failure on the way, in seconds; then it is told.
WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
TOO_MANY = 429
# Where an answer that asks for patience does not say how much.
PATIENCE_SECONDS = 15.0
# So long an answer may ask to wait at once, and so long it is heard in all.
LONGEST_SECONDS, TOO_MANY_SECONDS = 120.0, 300.0

NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
BAD_KEY = "global/invalid-api-key"
QUOTA = "global/quota-exceeded"
NOT_FOUND = "global/object-does-not-exist"
INTERNAL = "global/internal-error"
CROWDED = "too-many-requests"
# Something behind the API failed; documented as worth another try.
PROVIDER = "provider/"


class ApiError(Exception):
    """Lambda refused, in its own words."""

    def __init__(self, status: int, code: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.suggestion = status, code, message, suggestion

    @property
    def passes(self) -> bool:
        """Tell whether the same request may be answered later."""
        return self.status >= 500 or self.code == INTERNAL or self.code.startswith(PROVIDER)


class Unreachable(Exception):
    """The API gave no answer that can be understood."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back over HTTP."""

    status: int
    body: bytes
    retry_after: str | None = None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow nobody: urllib would take the key along to any other host."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect an answer like any other."""


_OPENER = urllib.request.build_opener(_NoRedirects)


def send(request: urllib.request.Request) -> Answer:
    """Send one request; a refusal is an answer as well."""
    try:
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as reply:
            return Answer(reply.status, reply.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.read(), refusal.headers.get("Retry-After"))


def is_safe(endpoint: str) -> bool:
    """Tell whether a key may be sent there: encrypted, or to this machine."""
    return endpoint.startswith(("https://", "http://127.0.0.1:", "http://[::1]:"))


class LambdaApi:
    """Requests in their turn, each answered with its data or with one kind of error."""

    def __init__(
        self,
        key: str,
        clock: Clock,
        endpoint: str = ENDPOINT,
        sleep: Callable[[float], None] = time.sleep,
        transport: Callable[[urllib.request.Request], Answer] = send,
    ) -> None:
        if not is_safe(endpoint):
            raise ValueError(f"the key is sent over https only, not to {endpoint}")
        self._key, self._clock, self._endpoint = key, clock, endpoint.rstrip("/")
        self._sleep, self._transport = sleep, transport

    def instances(self) -> list[dict[str, Any]]:
        """Return all instances of the account, those that are ending included."""
        return list(self._ask("GET", "/instances"))

    def instance_types(self) -> dict[str, dict[str, Any]]:
        """Return type, price and regions with capacity, by the type's name."""
        return dict(self._ask("GET", "/instance-types"))

    def regions(self) -> list[str]:
        """Return the names of all regions, whether there is room in them or not."""
        return [str(one["name"]) for one in self._ask("GET", "/regions")]

    def file_systems(self) -> list[dict[str, Any]]:
        """Return the file systems of the account."""
        return list(self._ask("GET", "/file-systems"))

    def ssh_keys(self) -> list[dict[str, Any]]:
        """Return the public keys that instances can be given."""
        return list(self._ask("GET", "/ssh-keys"))

    def rulesets(self) -> list[dict[str, Any]]:
        """Return the firewall rulesets."""
        return list(self._ask("GET", "/firewall-rulesets"))

    def launch(self, wanted: Mapping[str, Any]) -> str:
        """Launch one instance and return its id."""
        data = self._ask("POST", "/instance-operations/launch", wanted, ("request", "launch"))
        if len(data["instance_ids"]) != 1:
            raise ReplyLost(f"a launch was answered with {data['instance_ids']}")
        return str(data["instance_ids"][0])

    def terminate(self, instances: Sequence[str]) -> list[str]:
        """End instances; return the ids of those that are ending."""
        wanted = {"instance_ids": list(instances)}
        data = self._ask("POST", "/instance-operations/terminate", wanted)
        return [str(one["id"]) for one in data["terminated_instances"]]

    def rename(self, instance: str, name: str) -> None:
        """Give an instance another name."""
        self._ask("POST", f"/instances/{instance}", {"name": name})

    def create_file_system(self, name: str, region: str) -> dict[str, Any]:
        """Create a file system."""
        return dict(self._ask("POST", "/filesystems", {"name": name, "region": region}))

    def delete_file_system(self, identity: str) -> None:
        """Delete a file system and all that is in it."""
        self._ask("DELETE", f"/filesystems/{identity}")

    def add_ssh_key(self, name: str, public_key: str) -> dict[str, Any]:
        """Store a public key."""
        return dict(self._ask("POST", "/ssh-keys", {"name": name, "public_key": public_key}))

    def create_ruleset(
        self, name: str, region: str, rules: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Create a firewall ruleset."""
        wanted = {"name": name, "region": region, "rules": [dict(rule) for rule in rules]}
        return dict(self._ask("POST", "/firewall-rulesets", wanted))

    def change_ruleset(self, identity: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Give a firewall ruleset these rules and no others."""
        wanted = {"rules": [dict(rule) for rule in rules]}
        return dict(self._ask("PATCH", f"/firewall-rulesets/{identity}", wanted))

    def delete_ruleset(self, identity: str) -> None:
        """Delete a firewall ruleset that no instance uses."""
        self._ask("DELETE", f"/firewall-rulesets/{identity}")

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kinds: tuple[str, ...] = ("request",),
    ) -> Any:
        launches = "launch" in kinds
        waits = iter(WAITS)
        held = 0.0
        while True:
            self._clock.turn(*kinds)
            try:
                answer = self._transport(self._request(method, path, body))
                if answer.status == TOO_MANY:
                    if held >= TOO_MANY_SECONDS:
                        raise _crowded(answer, held)
                    hold = _seconds(answer.retry_after)
                    self._clock.hold(kinds[-1], hold)
                    held += hold
                    continue
                return _data(answer)
            except (ApiError, Unreachable, OSError, http.client.HTTPException) as error:
                if isinstance(error, ApiError) and not error.passes:
                    raise
                if launches and not _never_sent(error):
                    raise ReplyLost(f"{self._endpoint}{path}: {_words(error)}") from error
                wait = next(waits, None)
                if wait is None:
                    message = f"{method} {self._endpoint}{path}: {_words(error)}"
                    raise Unreachable(message) from error
                self._sleep(wait)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> urllib.request.Request:
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        url = f"{self._endpoint}{path}"
        return urllib.request.Request(url, content, headers, method=method)  # noqa: S310


def _data(answer: Answer) -> Any:
    """Return the data of an answer, or raise what it refuses with."""
    try:
        content = json.loads(answer.body)
        if answer.status < 300:
            return content["data"]
        error = content["error"]
        raise ApiError(
            answer.status, str(error["code"]), str(error["message"]), error.get("suggestion") or ""
        )
    except (ValueError, KeyError, TypeError) as strange:
        text = answer.body[:200].decode(errors="replace")
        raise Unreachable(f"an answer that is not the API's: {answer.status} {text!r}") from strange


def _seconds(retry_after: str | None) -> float:
    """Return the wait that an answer asks for."""
    try:
        return min(max(float(retry_after or PATIENCE_SECONDS), 1.0), LONGEST_SECONDS)
    except ValueError:
        return PATIENCE_SECONDS


def _crowded(answer: Answer, held: float) -> ApiError:
    """Return the refusal of a key that something else uses all the time."""
    message = f"too many requests for {held:.0f} s, all of ours being waits"
    return ApiError(answer.status, CROWDED, message)


def _never_sent(error: Exception) -> bool:
    """Tell whether the connection failed before anything could have been asked."""
    reason = getattr(error, "reason", None)
    return isinstance(reason, (ConnectionRefusedError, socket.gaierror))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
