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
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests import quiet_network

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium reads commands from 3 and writes answers to 4.
COMMAND = 'exec "$@" 3<&{} 4>&{}'
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"),
    "--window-size=1180,1280",
)
ANSWER_SECONDS = 300
FRAME = "requestAnimationFrame(() => {})"
CLICKS = 3
# What a page that keeps somebody waiting is doing: what it asked for, and for how long (ms).
ASKED = """[
  document.visibilityState, document.activeElement?.id, document.body.innerText.slice(-300),
  ...performance.getEntriesByType("resource").map(
    (one) => [one.name, one.startTime, one.duration],
  ),
]"""


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
            [
                *("bash", "-c", COMMAND.format(to_read, to_write), "bash"),
                *(sys.executable, quiet_network.__file__, CHROMIUM, *flags),
            ],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.group = self._process.pid
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
        os.killpg(self.group, signal.SIGKILL)
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
        """Load a page and wait for all its scripts, and until it is there to be clicked on."""
        opened = self.call("Page.navigate", url=url)
        assert "errorText" not in opened, f"{url}: {opened['errorText']}"
        self.wait("document.readyState === 'complete'", 120)
        self.frame()

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
            if time.monotonic() > deadline:
                told = [*self.complaints, *self.evaluate(ASKED)]
                raise AssertionError(f"{expression}: not within {seconds} s; the page: {told}")
            time.sleep(0.05)
        return found

    def text(self, selector: str) -> str:
        """Return what a person reads in an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        """Press and release the left button in the middle of an element, until it was met."""
        where = f"""(() => {{
          const found = document.querySelector({json.dumps(selector)});
          window.met = false;
          const meet = () => (window.met = true);
          found.addEventListener("click", meet, {{ capture: true, once: true }});
          found.scrollIntoView({{ block: "center" }});
          const {{ x, y, width, height }} = found.getBoundingClientRect();
          return [x + width / 2, y + height / 2];
        }})()"""
        at: dict[str, Any] = {"button": "left", "clickCount": 1}
        for _ in range(CLICKS):
            at["x"], at["y"] = self.evaluate(where)
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, **at)
            # A browser that was starved of processor time drops what comes before it has drawn.
            if self.evaluate("window.met"):
                return
            self.frame()
        raise AssertionError(f"{selector} was never met by {CLICKS} clicks at {at['x']}, {at['y']}")

    def frame(self) -> None:
        """Wait until what the page holds by now is drawn."""
        self.evaluate(f"new Promise((shown) => {FRAME.format(FRAME.format('shown()'))})")

    def write(self, selector: str, text: str) -> None:
        """Replace the content of a field, as typed."""
        self.click(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.call("Input.insertText", text=text)

    def saved(self, selector: str, directory: Path, kind: str) -> Path:
        """Click on what saves a file of this kind, and return it once it is whole."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(directory))
        self.click(selector)
        deadline = time.monotonic() + 120
        # The name is there, empty, before what is written beside it takes its place.
        while not (found := [one for one in directory.glob(f"*.{kind}") if one.stat().st_size]):
            assert time.monotonic() < deadline, "nothing was saved"
            time.sleep(0.05)
        return found[0]

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
