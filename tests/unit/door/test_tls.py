"""What a scan of the door's TLS finds, with a certificate of RSA, as users bring one."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator

import pytest

from .running import HAPROXY, Running

# Without encryption or a certificate; broken; CBC with SHA-1; and without forward secrecy.
WEAK = (
    "eNULL",
    "aNULL",
    "DES-CBC3-SHA",
    "RC4",
    "AES128-SHA",
    "AES256-SHA256",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-RSA-AES256-SHA384",
    "AES128-GCM-SHA256",
    "DHE-RSA-AES128-GCM-SHA256",
    "CAMELLIA",
)


class WithRsa(Running):
    """A door with such a certificate."""

    def _certificate(self) -> None:
        super()._certificate()
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=door"),
                *("-newkey", "rsa:2048", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", f"{self.directory}/tls.key", "-out", f"{self.directory}/tls.crt"),
            ],
            check=True,
            capture_output=True,
        )
        self.context = ssl.create_default_context(cafile=str(self.directory / "tls.crt"))


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithRsa]:
    if HAPROXY is None:
        pytest.skip("no haproxy on this machine")
    with WithRsa(tmp_path_factory.mktemp("tls")) as running:
        yield running


def agreed(door: Running, ciphers: str) -> str:
    """Return the cipher that comes about over TLS 1.2, with none but these offered."""
    context = ssl.create_default_context(cafile=str(door.directory / "tls.crt"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", door.port), 30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        assert secure.compression() is None
        found = secure.cipher()
    return found[0] if found else ""


def test_only_ciphers_with_forward_secrecy_and_authentication_come_about(scanned: WithRsa) -> None:
    assert agreed(scanned, "ALL").startswith("ECDHE-RSA-")
    assert agreed(scanned, "ECDHE-RSA-AES128-GCM-SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"
    weak = []
    for cipher in WEAK:
        try:
            weak.append(agreed(scanned, cipher))
        except ssl.SSLError as error:
            # The door's alert, or a cipher that this OpenSSL cannot even offer.
            assert "HANDSHAKE_FAILURE" in str(error) or "No cipher" in str(error), error
    assert weak == []


def test_a_client_cannot_begin_anew_in_its_connection(scanned: WithRsa) -> None:
    """Each handshake costs the door more than its client."""
    openssl = shutil.which("openssl")
    assert openssl
    command = [openssl, "s_client", "-connect", f"127.0.0.1:{scanned.port}", "-tls1_2"]
    # R is openssl's own command for it.
    done = subprocess.run(
        command, input="R\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert "RENEGOTIATING" in done.stdout + done.stderr
    assert "no renegotiation" in done.stderr
    assert scanned.ask("GET", "/health")[0] == 200
