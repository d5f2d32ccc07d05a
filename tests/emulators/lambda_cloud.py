"""Lambda's cloud API over HTTP: an emulator held to the published description.

    with Cloud(Account([...]), key="secret") as cloud:
        cloud.lose_launch_replies = 1
        ... an API at cloud.url ...
        cloud.log

Requests that come sooner than the documented distance are refused with 429, those without the key
with 401. A request that does not fit the description is refused, and an answer of ours that does
not is kept in `misfits`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from .lambda_account import Account
from .lambda_description import PREFIX, Description
from .lambda_parts import Refusal, invalid
from .served import Served

Route = tuple[str, str, Callable[[Account, str, dict[str, Any]], Any]]
ROUTES: list[Route] = [
    ("GET", "/instances", lambda account, _, __: account.listed()),
    ("GET", "/instances/{id}", lambda account, one, _: account.instance(one)),
    ("POST", "/instances/{id}", lambda account, one, body: account.rename(one, body)),
    ("GET", "/regions", lambda account, _, __: account.list_regions()),
    ("GET", "/instance-types", lambda account, _, __: account.list_types()),
    ("POST", "/instance-operations/launch", lambda account, _, body: account.launch(body)),
    (
        "POST",
        "/instance-operations/terminate",
        lambda account, _, body: account.terminate(body["instance_ids"]),
    ),
    ("GET", "/file-systems", lambda account, _, __: account.list_file_systems()),
    (
        "POST",
        "/filesystems",
        lambda account, _, body: account.create_file_system(body["name"], body["region"]),
    ),
    ("DELETE", "/filesystems/{id}", lambda account, one, _: account.delete_file_system(one)),
    ("GET", "/ssh-keys", lambda account, _, __: list(account.ssh_keys.values())),
    ("GET", "/firewall-rulesets", lambda account, _, __: list(account.rulesets.values())),
    (
        "POST",
        "/firewall-rulesets",
        lambda account, _, body: account.create_ruleset(
            body["name"], body["region"], body["rules"]
        ),
    ),
    (
        "PATCH",
        "/firewall-rulesets/{id}",
        lambda account, one, body: account.change_ruleset(one, body),
    ),
    ("DELETE", "/firewall-rulesets/{id}", lambda account, one, _: account.delete_ruleset(one)),
]
UNAUTHORIZED = Refusal(
    401,
    "global/invalid-api-key",
    "API key was invalid, expired, or deleted.",
    "Check your API key or create a new one, then try again.",
)
INTERNAL = Refusal(
    500,
    "global/internal-error",
    "An internal server error occurred.",
    "Try again later. Contact Support if the problem persists.",
)
UNKNOWN = Refusal(404, "global/not-found", "The requested page was not found.")


class Cloud(Served):
    """An account behind an address of this machine."""

    def __init__(
        self,
        account: Account,
        key: str,
        request_seconds: float = 1.0,
        launch_seconds: float = 12.0,
    ) -> None:
        self.account, self.key = account, key
        self.description = Description()
        self.request_seconds, self.launch_seconds = request_seconds, launch_seconds
        self.lose_launch_replies = 0
        self.fail_requests = 0
        self.fail_launches = 0
        # So many of the next requests are called too early, however slow their sender is.
        self.too_early = 0
        self.log: list[tuple[str, str, int]] = []
        self.misfits: list[str] = []
        self._last: dict[str, float] = {}
        self.serve(_handler(self))

    @property
    def url(self) -> str:
        """The base of the API."""
        return f"{self.origin}{PREFIX}"

    @property
    def writes(self) -> list[str]:
        """Which requests that could change something were sent."""
        return [path for method, path, _ in self.log if method != "GET"]

    def answer(self, method: str, path: str, key: str, body: Any) -> tuple[int, Any] | None:
        """Return status and body of an answer; None is silence."""
        with self._lock:
            status, content = self._answer(method, path, key, body)
            self.log.append((method, path, status))
            if path.endswith("/launch") and status == 200 and self.lose_launch_replies > 0:
                self.lose_launch_replies -= 1
                return None
            return status, content

    def _answer(self, method: str, path: str, key: str, body: Any) -> tuple[int, Any]:
        found = _route(method, path)
        try:
            if key != f"Bearer {self.key}":
                raise UNAUTHORIZED
            if self._too_early("request", self.request_seconds):
                return 429, {"error": {"code": "global/rate-limit", "message": "Slow down."}}
            if found is None:
                raise UNKNOWN
            template, one, call = found
            if self._fails(template):
                raise INTERNAL
            if template.endswith("/launch") and self._too_early("launch", self.launch_seconds):
                return 429, {"error": {"code": "global/rate-limit", "message": "Slow down."}}
            if wrong := self.description.request_misfits(method, template, body):
                raise invalid("; ".join(wrong))
            status, content = 200, {"data": call(self.account, one, body or {})}
        except Refusal as refusal:
            status, content = refusal.status, {"error": refusal.error}
        if found:
            self.misfits += self.description.answer_misfits(method, found[0], status, content)
        return status, content

    def _fails(self, template: str) -> bool:
        if template.endswith("/launch") and self.fail_launches > 0:
            self.fail_launches -= 1
            return True
        if self.fail_requests > 0:
            self.fail_requests -= 1
            return True
        return False

    def _too_early(self, kind: str, distance: float) -> bool:
        if kind == "request" and self.too_early > 0:
            self.too_early -= 1
            return True
        now = time.monotonic()
        # Requests that were sent at the right distance may arrive a little closer.
        if now - self._last.get(kind, float("-inf")) < 0.5 * distance:
            return True
        self._last[kind] = now
        return False


def _route(method: str, path: str) -> tuple[str, str, Callable[..., Any]] | None:
    for wanted, template, call in ROUTES:
        pattern = re.escape(template).replace(r"\{id\}", "([^/]+)")
        match = re.fullmatch(pattern, path.removeprefix(PREFIX))
        if wanted == method and match and path.startswith(PREFIX + "/"):
            return template, match[1] if match.groups() else "", call
    return None


def _handler(cloud: Cloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(size)
            try:
                body = json.loads(sent) if sent else None
            except ValueError:
                body = "no JSON"
            key = self.headers.get("Authorization", "")
            found = cloud.answer(self.command, self.path.partition("?")[0], key, body)
            if found is None:
                self.close_connection = True
                return
            status, answer = found
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            """Say nothing: `cloud.log` holds it all."""

    return Handler
