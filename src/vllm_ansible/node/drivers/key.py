"""Tell the fingerprint of an OpenPGP key without gpg, which a small host does not have."""

from __future__ import annotations

import base64
import hashlib
import re

PUBLIC_KEY = 6


class KeyFileError(ValueError):
    """A file is no OpenPGP key that can be read."""


def fingerprints(data: bytes) -> list[str]:
    """Return the fingerprints of the primary keys in a key file, armoured or not.

    Only version 4 keys are read (RFC 9580, section 5.5.4.2): what package archives use.
    Raises KeyFileError where there is none.
    """
    found = [fingerprint(body) for tag, body in packets(dearmour(data)) if tag == PUBLIC_KEY]
    if not found:
        raise KeyFileError("it holds no OpenPGP public key")
    return found


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of the body of one public-key packet."""
    if body[:1] != b"\x04":
        raise KeyFileError(f"its key is of version {body[0] if body else 0}, not 4")
    text = b"\x99" + len(body).to_bytes(2, "big") + body
    # The standard says SHA-1: it names the key here, it does not sign anything.
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().upper()


def dearmour(data: bytes) -> bytes:
    """Return the bytes inside an ASCII armour, or the data itself where there is none."""
    if not data.lstrip().startswith(b"-----BEGIN PGP"):
        return data
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)\r?\n-----END PGP", data, re.DOTALL
    )
    if not blocks:
        raise KeyFileError("its armour holds no public key")
    return b"".join(_block(block) for block in blocks)


def _block(block: bytes) -> bytes:
    _, _, body = re.sub(rb"\r\n", b"\n", b"\n" + block).partition(b"\n\n")
    # The last line is a checksum; an armour may leave it out.
    lines = [line for line in body.splitlines() if not line.startswith(b"=")]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except ValueError as error:
        raise KeyFileError("its armour is not base64") from error


def packets(data: bytes) -> list[tuple[int, bytes]]:
    """Return tag and body of each packet, of the old format and of the new one."""
    found = []
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise KeyFileError(f"byte {at} begins no OpenPGP packet")
        if head & 0x40:
            tag, start, length = _new(data, at)
        else:
            tag, start, length = _old(data, at)
        if start + length > len(data):
            raise KeyFileError("it ends in the middle of a packet")
        found.append((tag, data[start : start + length]))
        at = start + length
    return found


def _old(data: bytes, at: int) -> tuple[int, int, int]:
    size = (1, 2, 4, 0)[data[at] & 3]
    length = int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else len(data) - at - 1
    return (data[at] >> 2) & 15, at + 1 + size, length


def _new(data: bytes, at: int) -> tuple[int, int, int]:
    tag = data[at] & 63
    first = data[at + 1] if at + 1 < len(data) else 0
    if first < 192:
        return tag, at + 2, first
    if first < 224:
        second = data[at + 2] if at + 2 < len(data) else 0
        return tag, at + 3, ((first - 192) << 8) + second + 192
    if first == 255:
        return tag, at + 6, int.from_bytes(data[at + 2 : at + 6], "big")
    raise KeyFileError("its packets come in parts, which keys never do")
