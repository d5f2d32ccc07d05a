"""A body that TLS finds damaged on its way is asked for again from there."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ...emulators.object_storage import LOOPBACK, ObjectStorage
from .conftest import SHARD, SHARDS, Program
from .objects import URL, asks, key


def certificate(path: Path) -> None:
    """Write a key and a certificate of this machine's loopback that it signs itself."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LOOPBACK)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), False
        )
        .sign(secret, hashes.SHA256())
    )
    path.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )


class Line:
    """What lies between: passes connections on, and flips one bit of what comes back, once."""

    def __init__(self, port: int, after: int) -> None:
        """Flip it in the first connection that brings so many bytes."""
        self.port, self.after, self.flipped = port, after, False
        self.listener = socket.create_server((LOOPBACK, 0))
        self.url = f"https://{LOOPBACK}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection((LOOPBACK, self.port))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(
                    target=self.pump, args=(source, sink, source is far), daemon=True
                ).start()

    def pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        """Pass on what comes until either side ends."""
        passed = 0
        try:
            while data := bytearray(source.recv(2**16)):
                passed += len(data)
                if back and passed > self.after and not self.flipped:
                    self.flipped = True
                    data[-1] ^= 1
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            one.close()


@pytest.fixture
def line(storage: ObjectStorage, program: Program) -> Iterator[Line]:
    """Let the store speak TLS, behind a line that damages a record."""
    pem = program.directory / "pem"
    certificate(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = storage.server
    server.socket = context.wrap_socket(server.socket, server_side=True)
    made = Line(server.server_address[1], SHARD // 2)
    program.variables |= {"AWS_ENDPOINT_URL": made.url, "AWS_CA_BUNDLE": str(pem)}
    yield made
    made.listener.close()


def test_a_damaged_record_is_a_broken_connection(
    storage: ObjectStorage, program: Program, tree: Path, line: Line
) -> None:
    found = asks(program).result
    digests = {one["name"]: one["sha256"] for one in found["files"]}
    etags = {one["name"]: one["etag"] for one in found["files"]}
    storage.asked.clear()
    assert not line.flipped
    request = program.fetching(found, model=URL, digests=digests, etags=etags)
    assert program.run({**request, "files": SHARDS[:1]}).result
    assert line.flipped
    assert [asked.key for asked in storage.asked] == [key(SHARDS[0])] * 2
    assert (program.out / SHARDS[0]).read_bytes() == (tree / SHARDS[0]).read_bytes()
