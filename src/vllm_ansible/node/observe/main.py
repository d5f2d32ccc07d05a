"""Write what the node exporter of this host cannot know, as a textfile for it, until asked to end.

The devices of a platform whose health no other process publishes, the ends of certificates, and
what the role knows of the plan: limits, prices, ends. Standard library only, Python 3.9.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ..accelerators import nvml_metrics, prometheus
from . import overview

SECONDS = 15.0
ANSWER_SECONDS = 20.0
END = "vllm_certificate_end_timestamp_seconds"
HELP = {
    END: "When a certificate ends.",
    "vllm_written_timestamp_seconds": "When this was written.",
}


def certificate_end(place: str, openssl: str) -> Optional[float]:
    """Return when the certificate that is served ends; None where nobody serves one.

    place: address and port. What lies on the disk may be of another list of names, or not read by
    who serves it yet. In seconds since the epoch.
    """
    address, _, port = place.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Who signed it is its clients' concern.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection((address, int(port)), ANSWER_SECONDS)
        with plain, context.wrap_socket(plain) as served:
            certificate = served.getpeercert(binary_form=True) or b""
        done = subprocess.run(  # noqa: S603 - openssl, by the path that the role gives
            [openssl, "x509", "-noout", "-enddate"],
            input=ssl.DER_cert_to_PEM_cert(certificate),
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=True,
        )
        said = done.stdout.strip().partition("=")[2]
        return float(calendar.timegm(time.strptime(said, "%b %d %H:%M:%S %Y GMT")))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def text(settings: Mapping[str, Any], now: float) -> str:
    """Return all that this host tells.

    settings: `facts`, each with name, labels, value and words; `certificates`, by name the address
    and port of who serves one, or nothing; `openssl`; where Prometheus runs `page`, as
    overview.text reads it, with its `file`.
    """
    helps = {**nvml_metrics.HELP, **HELP}
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {
        name: list(rows) for name, rows in nvml_metrics.current(now).items()
    }
    for fact in settings["facts"]:
        helps[fact["name"]] = fact["help"]
        samples.setdefault(fact["name"], []).append((fact["labels"], float(fact["value"])))
    for name, place in settings["certificates"].items():
        end = certificate_end(place, settings["openssl"])
        if end is not None:
            samples.setdefault(END, []).append(({"certificate": name}, end))
    samples["vllm_written_timestamp_seconds"] = [({}, now)]
    written = {
        name: [(labels, f"{value:.15g}") for labels, value in rows]
        for name, rows in samples.items()
    }
    return prometheus.text(written, helps, nvml_metrics.COUNTERS)


def main(file: str) -> None:
    """Write again and again until asked to end; then remove the file, which would be old."""
    with open(file, encoding="utf-8") as stream:
        settings = json.load(stream)
    page = settings.get("page")
    files = [one["file"] for one in (settings, page) if one]
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.is_set():
        prometheus.write(Path(settings["file"]), text(settings, time.time()))
        if page:
            prometheus.write(Path(page["file"]), overview.text(page, time.time()))
        ended.wait(SECONDS)
    for one in files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one)
