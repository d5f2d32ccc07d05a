"""An emulated Lambda that rents out the hosts of a lab, for as long as it runs:

    python -m tests.emulators.lambda_lab LAB DIRECTORY

DIRECTORY gets `key`, `url` once the API answers, and `pid`. The first machine is unhealthy.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

from vllm_ansible.lab import Lab

from .lab_machines import LabMachines
from .lambda_account import Account
from .lambda_cloud import Cloud
from .lambda_parts import Type

KIND, REGION = "gpu_1x_gh200", "us-east-3"


def main(name: str, directory: Path) -> None:
    """Serve until somebody ends this process."""
    lab = Lab.open(name)
    hosts = len(lab.record.hosts)
    kind = Type(KIND, "GH200 (96 GB)", 149, left={REGION: hosts})
    account = Account([kind], LabMachines(lab))
    account.add_ssh_key("mine", lab.paths.key.with_suffix(".pub").read_text())
    account.faults.boot_seconds = account.faults.terminating_seconds = 2
    account.faults.unhealthy = 1
    key = secrets.token_hex(20)
    with Cloud(account, key, request_seconds=0.1, launch_seconds=0.2) as cloud:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in (("key", key), ("pid", str(os.getpid())), ("url", cloud.url)):
            partial = directory / f".{file}"
            partial.touch(mode=0o600)
            partial.write_text(text)
            partial.replace(directory / file)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    # Before there are other threads, which would take the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1], Path(sys.argv[2]))
