"""The script that an administrator runs where the playbook has no root."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vllm_ansible.drivers.difference import Difference
from vllm_ansible.drivers.mend import commands, together
from vllm_ansible.drivers.repository import Repository


def script(host: str, found: Sequence[Difference], repository: Repository) -> str:
    """Return a shell script for root that mends all differences of one host."""
    mend = together(one.mend for one in found)
    lines = [
        "#!/bin/sh",
        f"# Brings the NVIDIA driver of {host} to what serving needs. Run it there, as root.",
        *(f"# - {one.what}: expected {one.expected}; found {one.found}" for one in found),
        "set -eu",
        '[ "$(id -u)" = 0 ] || { echo "run this as root" >&2; exit 1; }',
    ]
    if mend.repository:
        lines += add_repository(repository)
    lines += commands(mend, repository.manager)
    return "\n".join(lines) + "\n"


def add_repository(repository: Repository) -> list[str]:
    """Return the lines that fetch the key, prove it and add the repository."""
    key, url = shlex.quote(repository.key_path), shlex.quote(repository.key_url)
    apt = repository.manager == "apt"
    # Small hosts have neither; those of Red Hat have both.
    tools = ["apt-get update", "apt-get install --yes curl gnupg"] if apt else []
    lines = [
        *tools,
        'key="$(mktemp)"',
        f'curl --fail --silent --show-error --location --output "$key" {url}',
        'found="$(gpg --show-keys --with-colons "$key" | '
        'awk -F: \'$1 == "pub" {key = 1} $1 == "fpr" && key {print $10; key = 0}\')"',
        f'[ "$found" = {repository.fingerprint} ] || '
        '{ echo "another key than the one expected: $found" >&2; exit 1; }',
        f'install -D -m 0644 "$key" {key}',
        f"cat > {shlex.quote(repository.path)} <<'END'",
        repository.content.rstrip("\n"),
        "END",
    ]
    return lines + (["apt-get update"] if apt else [])
