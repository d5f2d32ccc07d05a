"""Fingerprints are what gpg says they are, and what is no key is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from vllm_ansible.node.drivers.key import KeyFileError, fingerprints

GPG = ("gpg", "--batch", "--yes", "--pinentry-mode", "loopback")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("gpg"):
        pytest.skip("keys are made by gpg, which is not on this machine")
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    for algorithm in ("rsa2048", "ed25519"):
        who = f"{algorithm} <nobody@example.invalid>"
        gpg(home, "--passphrase", "", "--quick-generate-key", who, algorithm, "sign", "never")
        gpg(home, "--export", "--armor", "--output", str(home / f"{algorithm}.asc"), who)
        gpg(home, "--export", "--output", str(home / f"{algorithm}.gpg"), who)
    gpg(home, "--export", "--armor", "--output", str(home / "both.asc"))
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)
    return home


def gpg(home: Path, *words: str) -> str:
    argv = [*GPG, "--homedir", str(home), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["rsa2048.asc", "rsa2048.gpg", "ed25519.asc", "both.asc"])
def test_fingerprints_are_those_of_gpg(keys: Path, name: str) -> None:
    shown = gpg(keys, "--show-keys", "--with-colons", str(keys / name))
    wanted = [line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr")]
    assert fingerprints((keys / name).read_bytes()) == wanted
    assert len(wanted) == (2 if name == "both.asc" else 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>404</html>",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----\n",
        b"-----BEGIN PGP MESSAGE-----\n\nAAAA\n-----END PGP MESSAGE-----\n",
        b"\x99\x01\x0d\x04",  # ends in the middle
        b"\xc6\x01\x03",  # version 3
        b"\xc6\xe1\x04\x04",  # a partial length
    ],
)
def test_what_is_no_key_is_refused(data: bytes) -> None:
    with pytest.raises(KeyFileError):
        fingerprints(data)
