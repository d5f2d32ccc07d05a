"""Drive a headless Chromium over its debugging pipe: clicks, keys, expressions, pictures.

The pipe is a pair of file descriptors that carry JSON and NUL, so no client library is needed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium reads commands from 3 and writes answers to 4.
COMMAND = 'exec "$@" 3<&{} 4>&{}'
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"),
    "--window-size=1180,1280",
)
ANSWER_SECONDS = 60


def _far_from_standard(descriptor: int) -> int:
    """Return a copy of a descriptor that cannot be 3 or 4 itself, and close it."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy


def key_digest(certificate: bytes) -> str:
    """Return what a browser knows a certificate (PEM) by: the digest of its public key."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path, trusted_key: str = "") -> None:
        """Start it with a profile of its own.

        trusted_key: the key_digest of a certificate that it takes although nobody it knows has
        signed it.
        """
        assert CHROMIUM is not None, "chromium is not installed"
        to_read, self._write = map(_far_from_standard, os.pipe())
        self._read, to_write = map(_far_from_standard, os.pipe())
        # Its sandbox needs another user than root.
        flags = [*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] * (os.geteuid() == 0))]
        if trusted_key:
            flags.append(f"--ignore-certificate-errors-spki-list={trusted_key}")
        self._process = subprocess.Popen(
            ["bash", "-c", COMMAND.format(to_read, to_write), "bash", CHROMIUM, *flags],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End it with everything it started."""
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of one command; what happens meanwhile is listened to."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._listen(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _listen(self, event: dict[str, Any]) -> None:
        """Keep exceptions, and what the browser itself finds wrong with the page."""
        told = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        # A refused request is listed too, and is what some tests are about.
        if event.get("method") == "Log.entryAdded" and told["entry"]["source"] != "network":
            self.complaints.append(told["entry"]["text"])

    def open(self, url: str) -> None:
        """Load a page and wait for all its scripts."""
        opened = self.call("Page.navigate", url=url)
        assert "errorText" not in opened, f"{url}: {opened['errorText']}"
        self.wait("document.readyState === 'complete'", 30)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of what it promises."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, json.dumps(found["exceptionDetails"])[:500]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float) -> Any:
        """Return the value of an expression as soon as it is true."""
        deadline = time.monotonic() + seconds
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression}: not within {seconds} s"
            time.sleep(0.05)
        return found

    def text(self, selector: str) -> str:
        """Return what a person reads in an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        """Press and release the left button in the middle of an element."""
        x, y = self.evaluate(
            f"""(() => {{
              const found = document.querySelector({json.dumps(selector)});
              found.scrollIntoView({{ block: "center" }});
              const {{ x, y, width, height }} = found.getBoundingClientRect();
              return [x + width / 2, y + height / 2];
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, selector: str, text: str) -> None:
        """Replace the content of a field, as typed."""
        self.click(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)

    def downloads(self, directory: Path) -> None:
        """Keep files that the page saves in a directory."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(directory))

    def look(self, width: int, dark: bool) -> None:
        """Take a width in pixels, and the colours that a person prefers."""
        size = {"width": width, "height": 1280, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Keep what the window shows as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
        path.write_bytes(base64.b64decode(shot["data"]))
