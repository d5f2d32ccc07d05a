"""The cluster's key on a host, for one purpose at a time: proof of one opens nothing else."""

from __future__ import annotations

import hashlib
import hmac

from ..failure import Failure


def derived(path: str, domain: bytes) -> bytes:
    """Return the key that a cluster's secret file gives for the purpose of this name alone."""
    return hmac.new(secret(path), domain, hashlib.sha256).digest()


def secret(path: str) -> bytes:
    """Return what a cluster's secret file holds; raise Failure where there is nothing to read."""
    try:
        with open(path, "rb") as handle:
            found = handle.read().strip()
    except OSError as error:
        raise _no_key(path, error.strerror or str(error)) from error
    if not found:
        raise _no_key(path, "an empty file")
    return found


def _no_key(path: str, found: str) -> Failure:
    return Failure(
        f"the cluster's key cannot be read from {path}: {found}",
        expected="the secret that the stage prepare puts on every host",
        found=found,
        where=path,
        fix="run the stage prepare (--tags prepare)",
    )
