"""RunPod's REST API over HTTP: an emulator held to the published description.

    with Cloud(Account([...], {...}), key="secret") as cloud:
        cloud.lose_launch_replies = 1
        ... an API at cloud.url ...
        cloud.log

A request that does not fit the description is refused with 422, and an answer of ours that does not
is kept in `misfits`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl

from .runpod_account import Account
from .runpod_description import PREFIX, Description, content_type
from .runpod_parts import Refusal
from .served import Served

Call = Callable[[Account, str, dict[str, str], dict[str, Any]], Any]
ROUTES: list[tuple[str, str, int, Call]] = [
    ("GET", "/clusters", 200, lambda account, _, __, ___: account.list_clusters()),
    ("POST", "/clusters", 201, lambda account, _, __, body: account.create_cluster(body)),
    ("DELETE", "/clusters/{id}", 204, lambda account, one, _, __: account.delete_cluster(one)),
    (
        "GET",
        "/pods",
        200,
        lambda account, _, query, __: account.list_pods(query.get("includeClusterPods") == "true"),
    ),
    ("POST", "/pods", 201, lambda account, _, __, body: account.create_pod(body)),
    ("DELETE", "/pods/{id}", 204, lambda account, one, _, __: account.delete_pod(one)),
    ("GET", "/network-volumes", 200, lambda account, _, __, ___: account.list_volumes()),
    ("POST", "/network-volumes", 201, lambda account, _, __, body: account.create_volume(body)),
    (
        "DELETE",
        "/network-volumes/{id}",
        204,
        lambda account, one, _, __: account.delete_volume(one),
    ),
    ("GET", "/catalog/gpus", 200, lambda account, _, query, __: account.list_types(query)),
    ("GET", "/catalog/cpus", 200, lambda account, _, query, __: account.list_cpus(query)),
    ("GET", "/catalog/datacenters", 200, lambda account, _, __, ___: account.list_centers()),
    ("GET", "/billing/network-volumes", 200, lambda account, _, __, ___: account.bill_volumes()),
]
LAUNCHES = (("POST", "/clusters"), ("POST", "/pods"))


class Cloud(Served):
    """An account behind an address of this machine."""

    def __init__(self, account: Account, key: str) -> None:
        self.account, self.key = account, key
        self.description = Description()
        self.lose_launch_replies = 0
        # Requests that are answered with 500, and with 429.
        self.fail_requests = 0
        self.crowd_requests = 0
        self.retry_after = "1"
        self.log: list[tuple[str, str, int]] = []
        self.bodies: list[dict[str, Any]] = []
        self.misfits: list[str] = []
        self.serve(_handler(self))

    @property
    def url(self) -> str:
        """The base of the API."""
        return f"{self.origin}{PREFIX}"

    @property
    def writes(self) -> list[str]:
        """Which requests that could change something were sent."""
        return [f"{method} {path}" for method, path, _ in self.log if method != "GET"]

    def answer(self, method: str, target: str, key: str, body: Any) -> tuple[int, Any, str] | None:
        """Return status, body and its type of an answer; None is silence."""
        with self._lock:
            path, _, query = target.removeprefix(PREFIX).partition("?")
            status, content, kind = self._answer(method, path, dict(parse_qsl(query)), key, body)
            self.log.append((method, path, status))
            if (method, path) in LAUNCHES and status == 201:
                self.bodies.append(body)
                if self.lose_launch_replies > 0:
                    self.lose_launch_replies -= 1
                    return None
            return status, content, kind

    def _answer(
        self, method: str, path: str, query: dict[str, str], key: str, body: Any
    ) -> tuple[int, Any, str]:
        found = _route(method, path)
        if found is None:
            return 404, Refusal(404, "no such path").body, "application/problem+json"
        template, one, status, call = found
        content: Any
        try:
            self._judge(method, template, key)
            if wrong := self.description.request_misfits(method, template, query, body):
                raise Refusal(422, "Request validation failed.", wrong)
            content = call(self.account, one, query, body or {})
        except Refusal as refusal:
            status, content = refusal.status, refusal.body
        self.misfits += self.description.answer_misfits(method, template, status, content)
        return status, content, content_type(method, template, status)

    def _judge(self, method: str, template: str, key: str) -> None:
        """Refuse what is not this request's fault."""
        if key != f"Bearer {self.key}":
            raise Refusal(401, "invalid bearer token")
        if self.crowd_requests > 0:
            self.crowd_requests -= 1
            raise Refusal(429, "rate limit exceeded for the minute window")
        if (method, template) in self.account.faults.forbidden:
            raise Refusal(403, "access denied")
        if self.fail_requests > 0:
            self.fail_requests -= 1
            raise Refusal(500, "upstream failure")


def _route(method: str, path: str) -> tuple[str, str, int, Call] | None:
    for wanted, template, status, call in ROUTES:
        pattern = re.escape(template).replace(r"\{id\}", "([^/]+)")
        match = re.fullmatch(pattern, path)
        if wanted == method and match:
            return template, match[1] if match.groups() else "", status, call
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
            found = cloud.answer(
                self.command, self.path, self.headers.get("Authorization", ""), body
            )
            if found is None:
                self.close_connection = True
                return
            status, answer, kind = found
            content = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            if content:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if status == 429:
                self.send_header("Retry-After", cloud.retry_after)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            """Say nothing: `cloud.log` holds it all."""

    return Handler
