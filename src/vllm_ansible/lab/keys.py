"""Make the keys of one lab: one for the operator, one for each host, pinned before it starts."""

from collections.abc import Iterable
from pathlib import Path

from .commands import run


def ensure_key(path: Path, comment: str) -> str:
    """Return the public half of a key, generating the pair the first time."""
    public = path.with_name(path.name + ".pub")
    if not path.exists() or not public.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
    return public.read_text().strip()


def write_known_hosts(path: Path, hosts: Iterable[tuple[Iterable[str], str]]) -> None:
    """Pin each host's public key under all of its addresses."""
    lines = [f"{','.join(addresses)} {' '.join(key.split()[:2])}\n" for addresses, key in hosts]
    path.write_text("".join(lines))


def ssh_options(key: Path, known_hosts: Path) -> list[str]:
    """Return what ssh needs to reach a host of this lab and nothing else."""
    return [
        *("-F", "none", "-i", str(key)),
        *("-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
        *("-o", f'UserKnownHostsFile="{known_hosts}"', "-o", "StrictHostKeyChecking=yes"),
        # Also for what sshd says first, on a machine that has no processor for it.
        *("-o", "ConnectTimeout=30"),
    ]
