"""Object storage: moto's emulator of S3, and before it what goes wrong between it and a host.

moto (Apache-2.0) keeps buckets in memory and answers as S3 does, conditions and ranges included; it
accepts every key and serves without faults. What stands before it knows the keys that are good,
counts bytes, and cuts, stalls, slows down or refuses.

    with ObjectStorage({"AKIAGOOD"}) as storage:
        storage.put("bucket", "prefix/config.json", b"{}")
        storage.cut("prefix/model.safetensors", after=1000)
        ... AWS_ENDPOINT_URL=storage.url ...
        storage.sent["prefix/model.safetensors"], storage.asked
"""

from __future__ import annotations

import http.client
import logging
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from moto.server import ThreadedMotoServer

from .hub import CHUNK, Line, Server

REFUSAL = "<Error><Code>{}</Code><Message>{}</Message></Error>"
LOOPBACK = "127.0.0.1"


@dataclass
class Asked:
    """One request and what became of it."""

    at: float  # seconds of a monotonic clock
    method: str
    path: str
    key: str  # of the object, empty for a listing
    range: str
    access_key: str
    status: int = 0


@dataclass
class Refusal:
    """What is answered instead, so many times, to requests whose path holds a text."""

    status: int
    code: str
    times: int
    path: str
    headers: dict[str, str]


class ObjectStorage:
    """A running store; keys are the access keys that are good, all of them where none is given."""

    def __init__(self, keys: set[str] | None = None, address: str = LOOPBACK) -> None:
        self.keys = keys
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.moto = ThreadedMotoServer(ip_address=LOOPBACK, port=0, verbose=False)
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()  # bytes of content by key
        self.refusals: list[Refusal] = []
        # By key, what happens once that byte would be sent; True cuts the connection.
        self.events: dict[str, list[tuple[int, Callable[[], bool]]]] = {}
        self.unknown: set[str] = set()  # headers of requests that the store takes no notice of
        self.lock, self.line = threading.Lock(), Line()
        self.server = Server((address, 0), type("Front", (Front,), {"storage": self}))
        self.url = f"http://{address}:{self.server.server_address[1]}"

    def __enter__(self) -> ObjectStorage:
        self.moto.start()
        self.behind = self.moto.get_host_and_port()
        # All servers of a process share their buckets.
        reset = f"http://{LOOPBACK}:{self.behind[1]}/moto-api/reset"
        urllib.request.urlopen(urllib.request.Request(reset, method="POST")).close()
        self.client = boto3.client(
            "s3",
            endpoint_url="http://{}:{}".format(*self.behind),
            aws_access_key_id="owner",
            aws_secret_access_key="owner",  # noqa: S106  moto asks for any
            region_name="us-east-1",
        )
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.line.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.moto.stop()

    def bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self.client.create_bucket(Bucket=name)

    def put(self, bucket: str, key: str, content: bytes, **more: Any) -> None:
        """Put an object; ChecksumAlgorithm="SHA256" lets the store keep its sha256."""
        self.client.put_object(Bucket=bucket, Key=key, Body=content, **more)

    def when(self, key: str, after: int, action: Callable[[], bool]) -> None:
        """Do something once, where that byte of the object would be sent; True cuts there."""
        self.events.setdefault(key, []).append((after, action))

    def cut(self, key: str, after: int) -> None:
        """Close the connection once, where that byte would be sent."""
        self.when(key, after, lambda: True)

    def stall(self, key: str, after: int, seconds: float) -> None:
        """Send nothing for some seconds, once, from that byte on."""
        self.when(key, after, lambda: self.line.closing.wait(seconds))

    def throttle(self, rate: float) -> None:
        """Send at most so many bytes a second over all connections; 0 is no limit."""
        self.line.rate = rate

    def refuse(
        self, status: int, code: str, times: int = 1, path: str = "", **headers: str
    ) -> None:
        """Answer the next requests with an error, and headers like Retry_After."""
        self.refusals.append(Refusal(status, code, times, path, headers))

    def next_event(self, key: str, start: int, end: int) -> tuple[int, Callable[[], bool]] | None:
        """Return the first thing that happens within these bytes of an object, and forget it."""
        with self.lock:
            found = min(
                (event for event in self.events.get(key, []) if start <= event[0] < end),
                key=lambda event: event[0],
                default=None,
            )
            if found:
                self.events[key].remove(found)
            return found


class Front(BaseHTTPRequestHandler):
    """One connection to the store."""

    protocol_version = "HTTP/1.1"
    storage: ObjectStorage

    def handle_any(self) -> None:
        """Record a request; refuse it, or pass on what moto answers."""
        signed = re.search(r"Credential=([^/]*)/", self.headers.get("Authorization", ""))
        _, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        wanted = self.headers.get("Range", "")
        now, access_key = time.monotonic(), signed[1] if signed else ""
        self.asked = Asked(now, self.command, self.path, key, wanted, access_key)
        self.storage.asked.append(self.asked)
        if self.storage.keys is not None and access_key not in self.storage.keys:
            self.refuse(Refusal(403, "InvalidAccessKeyId", 1, "", {}))
            return
        for refusal in self.storage.refusals:
            if refusal.times > 0 and refusal.path in self.path:
                refusal.times -= 1
                self.refuse(refusal)
                return
        behind = http.client.HTTPConnection(*self.storage.behind)
        sent = {
            name: text for name, text in self.headers.items() if name not in self.storage.unknown
        }
        behind.request(self.command, self.path, headers=sent)
        answer = behind.getresponse()
        body = answer.read()
        behind.close()
        length = str(len(body)) if self.command == "GET" else answer.headers["Content-Length"]
        self.head(answer.status, length, dict(answer.headers))
        self.content(key, body)

    do_GET = do_HEAD = handle_any

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error of S3's kind."""
        body = REFUSAL.format(refusal.code, "as it was told to").encode()
        headers = {name.replace("_", "-"): text for name, text in refusal.headers.items()}
        self.head(refusal.status, str(len(body)), {**headers, "Content-Type": "application/xml"})
        if self.command == "GET":
            self.wfile.write(body)

    def head(self, status: int, length: str, headers: dict[str, str]) -> None:
        """Send status and headers."""
        self.asked.status = status
        self.send_response_only(status)
        for name, text in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, text)
        self.send_header("Content-Length", length or "0")
        self.end_headers()

    def content(self, key: str, body: bytes) -> None:
        """Send an object, or the range of it that was asked for, with what happens on the way."""
        first = re.fullmatch(r"bytes=(\d+)-", self.asked.range)
        offset = int(first[1]) if first and self.asked.status == 206 else 0
        end, place = offset + len(body), offset
        while place < end:
            stop = min(place + CHUNK, end)
            event = self.storage.next_event(key, place, stop)
            stop = event[0] if event else stop
            self.storage.line.wait_for(stop - place)
            self.wfile.write(body[place - offset : stop - offset])
            with self.storage.lock:
                self.storage.sent[key] += stop - place if self.asked.status < 300 and key else 0
            place = stop
            if event and event[1]():
                self.close_connection = True
                return

    def log_message(self, *_: Any) -> None:
        """Leave the console to whoever started this."""
