"""The model hub over directories: an emulator of its HTTP API, as huggingface_hub uses it.

Large files (LFS) are redirected to a second port with a signed address, as the hub redirects to
its content network on another host: huggingface_hub treats both sides differently, and a token
that reaches the second one is refused there, as storage does.

    with Hub({"org/model": Repository(directory)}, tokens={"hf_a": "ann"}) as hub:
        hub.cut("model.safetensors", after=1000)
        ... HF_ENDPOINT=hub.url ...
        hub.sent["model.safetensors"], hub.asked

or, with the standard library alone, as a program that prints its address and serves:

    python hub.py DIRECTORY --model org/name --address 127.0.0.1 --port 8000 --rate 10000000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

# What .gitattributes of a new repository lists, as far as it matters for weights.
LARGE = {".safetensors", ".bin", ".gguf", ".h5", ".msgpack", ".onnx", ".ot", ".pth", ".model"}
LARGE_BYTES = 10 * 2**20
PAGE = 1000  # entries of a tree in one answer
CHUNK = 2**16
# What a slow line brings at once: a client takes one that brings nothing for 10 s for broken.
SLOW_CHUNK = 2**12
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
REFUSED = "Invalid credentials in Authorization header"
NO_USER = "Invalid username or password."
NO_REPOSITORY = "Repository not found"
NOT_SIGNED = "Access to model {} is restricted. You must have access to it and be authenticated."
NOT_GRANTED = "Access to model {} is restricted and you are not in the authorized list."


class Stored:
    """One file of a commit: its bytes, its git blob and, of a large one, its sha256."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.size = path, name, path.stat().st_size
        self.sha256 = ""
        blob, size = hashlib.sha1(b"blob %d\0" % self.size), self.size  # noqa: S324  git's own
        if path.suffix in LARGE or self.size > LARGE_BYTES:
            with path.open("rb") as content:
                self.sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            pointer = POINTER.format(self.sha256, self.size).encode()
            size = len(pointer)
            blob = hashlib.sha1(b"blob %d\0%s" % (size, pointer))  # noqa: S324  git's own
        else:
            blob.update(path.read_bytes())
        self.git, self.git_size = blob.hexdigest(), size

    def lfs(self, name: str) -> dict[str, Any]:
        """Return what the API says of a large file; the hash has another name in a tree."""
        if not self.sha256:
            return {}
        return {"lfs": {name: self.sha256, "size": self.size, "pointerSize": self.git_size}}


@dataclass
class Repository:
    """A model: a directory as its branch main, more directories by the names of revisions.

    readers are the users who may read a private one, and who were granted access to a gated one.
    xet is empty, or what its storage does: "refuse" connections, or "stall" after accepting them.
    """

    directory: Path
    revisions: dict[str, Path] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    readers: frozenset[str] = frozenset()
    xet: str = ""
    commits: dict[str, dict[str, Stored]] = field(init=False, default_factory=dict)
    names: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for revision, directory in {"main": self.directory, **self.revisions}.items():
            paths = sorted(path for path in Path(directory).rglob("*") if path.is_file())
            names = [str(path.relative_to(directory)) for path in paths]
            files = {name: Stored(path, name) for name, path in zip(names, paths, strict=True)}
            text = "".join(f"{one.name}\0{one.git}\n" for one in files.values())
            commit = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324  a name like git's
            self.commits[commit], self.names[revision] = files, commit

    def commit(self, revision: str) -> str:
        """Return the commit of a branch, tag or commit; empty where there is none."""
        return self.names.get(revision, revision if revision in self.commits else "")


@dataclass
class Asked:
    """One request and what became of it."""

    at: float  # seconds of a monotonic clock
    side: str  # hub, content
    method: str
    path: str
    range: str
    token: str
    status: int = 0
    sent: int = 0


@dataclass
class Fault:
    """Something that goes wrong with one file, at an offset in it, so many times."""

    kind: str  # cut, flip, truncate, stall
    name: str
    at: int
    times: float
    seconds: float = 0


class Refused(Exception):
    """An answer other than the one asked for."""

    def __init__(self, status: int, message: str, code: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers["X-Error-Message"] = message
        if code:
            self.headers["X-Error-Code"] = code


class Server(ThreadingHTTPServer):
    """One side of the hub."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of our own mistakes; clients may leave at any time."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Line:
    """A line of so many bytes a second, over all connections of a server; 0 is unbounded."""

    def __init__(self) -> None:
        self.rate, self.free_at = 0.0, 0.0
        self.lock, self.closing = threading.Lock(), threading.Event()

    def wait_for(self, count: int) -> None:
        """Wait until so many more bytes may be sent, or until it closes."""
        if self.rate:
            with self.lock:
                self.free_at = max(self.free_at, time.monotonic()) + count / self.rate
                pause = self.free_at - time.monotonic()
            self.closing.wait(max(0.0, pause))


class Hub:
    """A running hub; what is asked of it and what it sends is on record."""

    def __init__(
        self,
        repositories: dict[str, Repository],
        tokens: dict[str, str] | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        content_port: int = 0,
    ) -> None:
        self.repositories, self.tokens = repositories, dict(tokens or {})
        self.address, self.secret = address, secrets.token_hex(8)
        self.asked: list[Asked] = []
        self.sent: Counter[str] = Counter()  # bytes of content by file
        self.lock, self.line = threading.Lock(), Line()
        self.faults: list[Fault] = []
        self.busy: list[dict[str, Any]] = []
        self.revoked: dict[str, int] = {}
        self.servers = [
            self._serve(side, number) for side, number in (("hub", port), ("content", content_port))
        ]
        self.port, self.content_port = (server.server_address[1] for server in self.servers)
        self.url = f"http://{address}:{self.port}"

    def _serve(self, side: str, port: int) -> Server:
        handler = type("Side", (Handler,), {"hub": self, "side": side})
        return Server((self.address, port), handler)

    def __enter__(self) -> Hub:
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.line.closing.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def cut(self, name: str, after: int, times: float = 1) -> None:
        """Close the connection where the file's byte number `after` would be sent."""
        self.faults.append(Fault("cut", name, after, times))

    def flip(self, name: str, offset: int, times: float = 1) -> None:
        """Send one bit wrong; times=math.inf for always."""
        self.faults.append(Fault("flip", name, offset, times))

    def truncate(self, name: str, to: int, times: float = 1) -> None:
        """Send the file as if it ended there, cleanly."""
        self.faults.append(Fault("truncate", name, to, times))

    def stall(self, name: str, after: int, seconds: float, times: float = 1) -> None:
        """Send nothing for some seconds, from that byte of the file on."""
        self.faults.append(Fault("stall", name, after, times, seconds))

    def throttle(self, rate: float) -> None:
        """Send at most so many bytes a second over all connections; 0 is no limit."""
        self.line.rate = rate

    def refuse(self, status: int, times: int, path: str = "", **headers: str) -> None:
        """Answer the hub's next requests with a status, 429 or 5xx, and headers like Retry_After.

        path is a part of the requests' path.
        """
        self.busy.append({"status": status, "times": times, "path": path, "headers": headers})

    def revoke(self, token: str, after: int = 0) -> None:
        """Let a token be no longer good, once so many bytes of content were sent."""
        self.revoked[token] = after

    def user(self, token: str) -> str:
        """Return whose a token is, or refuse it; without one, nobody."""
        if not token:
            return ""
        gone = token in self.revoked and sum(self.sent.values()) >= self.revoked[token]
        if gone or token not in self.tokens:
            raise Refused(401, REFUSED)
        return self.tokens[token]

    def taken(self, kind: str, name: str, start: int, end: int) -> Fault | None:
        """Return a fault of that kind that hits these bytes of a file, and count it."""
        with self.lock:
            for fault in self.faults:
                hit = fault.name == name and start <= fault.at < end
                if fault.kind == kind and hit and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    """One connection to either side."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    side: str

    def handle_any(self) -> None:
        """Record a request, answer it."""
        self.bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = self.headers.get("Range", "")
        now = time.monotonic()
        self.asked = Asked(now, self.side, self.command, self.path, wanted, self.bearer)
        self.hub.asked.append(self.asked)
        address = urlsplit(self.path)
        self.query = {name: value[-1] for name, value in parse_qs(address.query).items()}
        try:
            parts = [unquote(part) for part in address.path.strip("/").split("/")]
            self.on_hub(parts) if self.side == "hub" else self.on_content(parts)
        except Refused as refused:
            self.answer(refused.status, {"error": str(refused)}, **refused.headers)

    do_GET = do_HEAD = handle_any

    def answer(self, status: int, content: Any, **headers: str) -> None:
        """Send one whole answer as JSON."""
        data = json.dumps(content).encode()
        self.head(status, len(data), Content_Type="application/json; charset=utf-8", **headers)
        if self.command != "HEAD":
            self.wfile.write(data)

    def head(self, status: int, length: int, **headers: str) -> None:
        """Send status and headers."""
        self.asked.status = status
        self.send_response(status)
        self.send_header("X-Request-Id", secrets.token_hex(8))
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def base(self, port: int) -> str:
        """Return the address of one side, by the name that the client used."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or self.hub.address
        return f"http://{host}:{port}"

    def on_hub(self, parts: list[str]) -> None:
        """Answer for the hub proper."""
        for fault in self.hub.busy:
            if fault["times"] > 0 and fault["path"] in self.path:
                fault["times"] -= 1
                raise Refused(fault["status"], "Try again later.", **fault["headers"])
        user = self.hub.user(self.bearer)
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            name, rest = "/".join(parts[2:4]), parts[4:]
        elif len(parts) >= 5 and parts[2] == "resolve":
            name, rest = "/".join(parts[:2]), parts[2:]
        else:
            raise Refused(404, "Not Found")
        found = self.hub.repositories.get(name)
        if found is None or (found.private and user not in found.readers):
            # Who is not signed in is not told which of the two it is.
            known = (404, NO_REPOSITORY) if user else (401, NO_USER)
            raise Refused(*known, "RepoNotFound")
        action = rest[0] if rest else "revision"
        revision = rest[1] if len(rest) > 1 else "main"
        commit = found.commit(revision)
        if not commit:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if action == "revision":
            self.answer(200, self.info(name, found, commit))
        elif action == "tree":
            self.tree(found, commit, "/".join(rest[2:]))
        elif action in ("resolve", "xet-read-token"):
            self.granted(name, found, user)
            if action == "resolve":
                self.resolve(name, found, commit, "/".join(rest[2:]))
            else:
                self.xet_token(found)
        else:
            raise Refused(404, "Not Found")

    def granted(self, name: str, found: Repository, user: str) -> None:
        """Refuse the content of a gated model to whom it was not granted."""
        if found.gated and user not in found.readers:
            status, text = (403, NOT_GRANTED) if user else (401, NOT_SIGNED)
            raise Refused(status, text.format(name), "GatedRepo")

    def info(self, name: str, found: Repository, commit: str) -> dict[str, Any]:
        """Return what is known of a model; sizes and hashes only where asked for."""
        siblings: list[dict[str, Any]] = []
        for one in found.commits[commit].values():
            sibling: dict[str, Any] = {"rfilename": one.name}
            if self.query.get("blobs", "").lower() == "true":
                sibling |= {"size": one.size, "blobId": one.git, **one.lfs("sha256")}
            siblings.append(sibling)
        return {
            "id": name,
            "modelId": name,
            "author": name.partition("/")[0],
            "sha": commit,
            "lastModified": "2026-01-01T00:00:00.000Z",
            "private": found.private,
            "gated": "auto" if found.gated else False,
            "disabled": False,
            "tags": [],
            "siblings": siblings,
        }

    def tree(self, found: Repository, commit: str, under: str) -> None:
        """List files and directories, a page at a time."""
        prefix = f"{under}/" if under else ""
        deep = self.query.get("recursive", "").lower() == "true"
        entries: dict[str, dict[str, Any]] = {}
        for one in found.commits[commit].values():
            if not one.name.startswith(prefix):
                continue
            first, *rest = one.name.removeprefix(prefix).split("/")
            for depth in range(len(rest) if deep else min(1, len(rest))):
                path = prefix + "/".join([first, *rest][: depth + 1])
                oid = hashlib.sha1(path.encode()).hexdigest()  # noqa: S324  a name like git's
                entries[path] = {"type": "directory", "oid": oid, "size": 0, "path": path}
            if deep or not rest:
                entry = {"type": "file", "oid": one.git, "size": one.size, "path": one.name}
                xet = {"xetHash": one.sha256} if found.xet and one.sha256 else {}
                entries[one.name] = {**entry, **one.lfs("oid"), **xet}
        if under and not entries:
            raise Refused(404, f"{under} does not exist on {commit}", "EntryNotFound")
        start = int(self.query.get("cursor", 0))
        end = start + int(self.query.get("limit", PAGE))
        headers = {"X-Repo-Commit": commit}
        if end < len(entries):
            path = urlsplit(self.path).path
            query = "&".join(
                f"{key}={quote(value)}" for key, value in {**self.query, "cursor": str(end)}.items()
            )
            headers["Link"] = f'<{self.base(self.hub.port)}{path}?{query}>; rel="next"'
        self.answer(200, list(entries.values())[start:end], **headers)

    def resolve(self, name: str, found: Repository, commit: str, path: str) -> None:
        """Send a small file; say where a large one is."""
        one = found.commits[commit].get(path)
        if one is None:
            raise Refused(404, "Entry not found", "EntryNotFound", X_Repo_Commit=commit)
        if not one.sha256:
            self.content(one, {"ETag": f'"{one.git}"', "X-Repo-Commit": commit})
            return
        signature = self.sign(one.sha256)
        base = self.base(self.hub.content_port)
        where = f"{base}/{one.sha256}?of={quote(name)}&signature={signature}"
        headers = {
            "Location": where,
            "X-Repo-Commit": commit,
            "X-Linked-Etag": f'"{one.sha256}"',
            "X-Linked-Size": str(one.size),
            "Accept-Ranges": "bytes",
        }
        if found.xet:
            headers["X-Xet-Hash"] = one.sha256
            route = f"{self.base(self.hub.port)}/api/models/{name}/xet-read-token/{commit}"
            headers["Link"] = f'<{route}>; rel="xet-auth"'
        self.answer(302, f"Found. Redirecting to {where}", **headers)

    def sign(self, digest: str) -> str:
        """Return what makes an address of the content side good."""
        return hashlib.sha256(f"{self.hub.secret}{digest}".encode()).hexdigest()[:16]

    def xet_token(self, found: Repository) -> None:
        """Say where the xet storage is; nothing good comes from there."""
        if not found.xet:
            raise Refused(404, "Not Found")
        # Port 9 (discard): nobody listens there.
        cas = self.base(9) if found.xet == "refuse" else f"{self.base(self.hub.content_port)}/cas"
        expires = str(int(time.time()) + 3600)
        headers = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": "x"}
        headers["X-Xet-Token-Expiration"] = expires
        self.answer(200, {"casUrl": cas, "exp": int(expires), "accessToken": "x"}, **headers)

    def on_content(self, parts: list[str]) -> None:
        """Answer for the content network: signed addresses, no tokens."""
        if parts[0] == "cas":
            self.hub.line.closing.wait(600)
            self.close_connection = True
            return
        if self.bearer:
            raise Refused(400, "Only one auth mechanism allowed")
        found = self.hub.repositories.get(self.query.get("of", ""))
        stored = (
            (one for files in found.commits.values() for one in files.values()) if found else ()
        )
        one = next((one for one in stored if one.sha256 == parts[0]), None)
        if one is None or self.query.get("signature") != self.sign(parts[0]):
            raise Refused(403, "Access denied")
        self.content(one, {"ETag": f'"{one.sha256}"'})

    def content(self, one: Stored, headers: dict[str, str]) -> None:
        """Send a file or the range of it that was asked for, with its faults."""
        start, end, whole = 0, one.size, True
        unit, _, wanted = self.asked.range.partition("=")
        if unit == "bytes" and "," not in wanted:
            first, _, last = wanted.partition("-")
            start = int(first) if first else max(0, one.size - int(last))
            end = min(one.size, int(last) + 1) if first and last else one.size
            whole = False
        shown = one.size
        if self.command != "HEAD" and (fault := self.hub.taken("truncate", one.name, 0, one.size)):
            shown, end = fault.at, min(end, fault.at)
        if start >= shown and not whole:
            raise Refused(416, "Range not satisfiable", Content_Range=f"bytes */{shown}")
        if not whole:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{shown}"
        headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        self.head(200 if whole else 206, end - start, **headers)
        if self.command != "HEAD":
            for data in self.chunks(one, start, end):
                self.hub.line.wait_for(len(data))
                self.wfile.write(data)
                with self.hub.lock:
                    self.hub.sent[one.name] += len(data)
                    self.asked.sent += len(data)

    def chunks(self, one: Stored, start: int, end: int) -> Iterator[bytes]:
        """Yield what is sent of a file, up to where the connection is cut."""
        cut = self.hub.taken("cut", one.name, start, end)
        stall = self.hub.taken("stall", one.name, start, end)
        stops = sorted({fault.at for fault in (cut, stall) if fault} | {end})
        with one.path.open("rb") as content:
            content.seek(start)
            for stop in stops:
                while start < stop:
                    most = SLOW_CHUNK if self.hub.line.rate else CHUNK
                    data = bytearray(content.read(min(most, stop - start)))
                    if flip := self.hub.taken("flip", one.name, start, start + len(data)):
                        data[flip.at - start] ^= 1
                    start += len(data)
                    yield bytes(data)
                if cut and cut.at == stop:
                    self.close_connection = True
                    return
                if stall and stall.at == stop:
                    self.hub.line.closing.wait(stall.seconds)

    def log_message(self, *_: Any) -> None:
        """Leave the console to whoever started this."""


def main() -> None:
    """Serve one directory until somebody ends this."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", default="org/model", help="name it is served under")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--content-port", type=int, default=0, help="of large files")
    parser.add_argument("--rate", type=float, default=0, help="bytes a second, over all")
    parser.add_argument("--token", action="append", default=[], help="accepted; its user may read")
    parser.add_argument("--gated", action="store_true")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--xet", choices=["", "refuse", "stall"], default="")
    wanted = parser.parse_args()
    model = Repository(
        wanted.directory,
        gated=wanted.gated,
        private=wanted.private,
        readers=frozenset(wanted.token),
        xet=wanted.xet,
    )
    tokens = {token: token for token in wanted.token}
    ports = (wanted.port, wanted.content_port)
    with Hub({wanted.model: model}, tokens, wanted.address, *ports) as hub:
        hub.throttle(wanted.rate)
        print(hub.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
