"""A certificate is for the user who serves with it, whatever the umask of who makes it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OPENSSL = shutil.which("openssl")


@pytest.mark.skipif(OPENSSL is None, reason="no openssl on this machine")
def test_a_hardened_umask_keeps_nobody_from_reading_the_certificate(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").touch()
    arguments = {
        "path": str(tmp_path / "own"),
        "subject": "/CN=demo",
        "names": "DNS:demo",
        "days": 825,
        "renewal_days": 30,
        "owner": pwd.getpwuid(os.getuid()).pw_name,
        "openssl": OPENSSL,
    }
    ansible = str(Path(sys.executable).with_name("ansible"))
    call = [ansible, "localhost", "-c", "local", "-m", "self_signed_certificate", "-a"]
    done = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "-", *call, json.dumps(arguments)],
        cwd=tmp_path,
        env={
            **os.environ,
            # Not the repository's settings: their callbacks would record this as a run.
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_LIBRARY": str(ROOT / "library"),
            "ANSIBLE_MODULE_UTILS": str(ROOT / "src"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    modes = [(tmp_path / f"own.{kind}").stat().st_mode & 0o777 for kind in ("crt", "key")]
    assert modes == [0o644, 0o600]
