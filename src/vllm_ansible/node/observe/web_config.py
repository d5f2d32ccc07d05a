"""The file by which Prometheus' programs ask for a password: a bcrypt hash, made by libcrypt."""

from __future__ import annotations

import ctypes
import json
import secrets

from ..failure import Failure

# Of libxcrypt; Red Hat's has another number. Both know bcrypt, glibc's own old one does not.
LIBRARIES = ("libcrypt.so.2", "libcrypt.so.1")
ALPHABET = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# The last letter of a salt has two bits only.
LAST = ".Oeu"
# Of 2^4 rounds: the key is 256 random bits, and each scrape asks for a hash.
PREFIX = "$2b$04$"


def crypt(password: str, setting: str) -> str:
    """Return the hash of a password; Failure where this host's libcrypt makes none of this kind."""
    for name in LIBRARIES:
        try:
            function = ctypes.CDLL(name).crypt
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_char_p
        made = function(password.encode(), setting.encode())
        if made and made.startswith(setting[: len(PREFIX)].encode()):
            return str(made.decode())
    raise Failure(
        "this host makes no bcrypt hash",
        expected=f"one of {', '.join(LIBRARIES)}, of libxcrypt",
        found="none that makes one",
        where="libcrypt",
        fix="install libcrypt1 (Debian, Ubuntu) or libxcrypt (Red Hat)",
    )


def holds(content: str, user: str, password: str) -> bool:
    """Tell whether a file lets in this user with this password, and nobody else."""
    try:
        users = json.loads(content)["basic_auth_users"]
        return list(users) == [user] and crypt(password, users[user]) == users[user]
    except (Failure, KeyError, TypeError, ValueError):
        return False


def text(user: str, password: str) -> str:
    """Return the content of a file that lets in this user; JSON is YAML, too."""
    salt = "".join(secrets.choice(ALPHABET) for _ in range(21)) + secrets.choice(LAST)
    return json.dumps({"basic_auth_users": {user: crypt(password, PREFIX + salt)}}) + "\n"
