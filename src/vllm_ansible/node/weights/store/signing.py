"""Requests that only a host of the cluster can make.

Weights are no secret to the cluster's own network, so they travel in the clear; nobody without the
cluster's key gets any, and nothing that a stranger sends can pass for a file, since the hub's
digests decide.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time

# The same secret opens nothing else with what is said here.
DOMAIN = b"vllm-ansible weights 1"
SCHEME = "VLLM-Ansible"
# Hosts whose clocks differ by more fail elsewhere, too.
SKEW_SECONDS = 300.0


def header(key: bytes, path: str) -> str:
    """Return the value of the header Authorization for a GET of this path."""
    stamp, nonce = f"{time.time():.0f}", os.urandom(8).hex()
    return f"{SCHEME} {stamp} {nonce} {_signature(key, path, stamp, nonce)}"


def refusal(key: bytes, path: str, shown: str) -> str:
    """Return why a request is refused; nothing where its sender holds the key."""
    parts = shown.split()
    if len(parts) != 4 or parts[0] != SCHEME:
        return "no signature"
    _, stamp, nonce, signature = parts
    # As bytes: of text, only ASCII can be compared.
    right = _signature(key, path, stamp, nonce).encode()
    if not hmac.compare_digest(signature.encode("utf-8", "backslashreplace"), right):
        return "another key"
    if not stamp.isdigit() or abs(time.time() - int(stamp)) > SKEW_SECONDS:
        return "another time: the clocks of the two hosts differ"
    return ""


def _signature(key: bytes, path: str, stamp: str, nonce: str) -> str:
    text = "\n".join(("GET", path, stamp, nonce))
    return hmac.new(key, text.encode("utf-8", "backslashreplace"), hashlib.sha256).hexdigest()
