"""One lab host: a container with its own address and sshd; its first process is a real systemd."""

import io
import json
import os
import resource
import tarfile
import time
from pathlib import Path
from typing import Any

from .cache import SharedCache
from .commands import LabError, podman, run
from .keys import ensure_key, ssh_options
from .paths import LabPaths
from .record import HostRecord, Record
from .sources import CA_BUNDLE, Sources

SSHD = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
# Thirty hosts started at once by one Ansible must not be turned away.
MaxStartups 100
"""
# podman asks for more by default than a machine without CAP_SYS_RESOURCE may give.
LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 1048576), "nproc": (resource.RLIMIT_NPROC, 32768)}


def limit_options() -> list[str]:
    """Return limits that this machine is allowed to hand on."""
    options = []
    for name, (number, most) in LIMITS.items():
        hard = resource.getrlimit(number)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        options += ["--ulimit", f"{name}={value}:{value}"]
    return options


def shared_memory() -> int:
    """Return half of this machine's memory: what /dev/shm holds on a real host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def create_arguments(
    record: Record, host: HostRecord, cache: SharedCache, sources: Sources
) -> list[str]:
    """Return the arguments of `podman create` for one host."""
    argv = ["create", "--name", host.container, "--hostname", host.name]
    argv += ["--label", f"vllm-ansible.lab={record.token}", "--privileged", "--systemd=always"]
    argv += ["--pids-limit=-1", f"--shm-size={shared_memory()}", *limit_options()]
    for index, network in enumerate(record.networks):
        address = host.addresses[network.role]
        argv += ["--network", f"{network.name}:ip={address},interface_name=eth{index}"]
    # podman would copy this machine's own names into the host.
    argv += ["--no-hosts"]
    argv += [f"--volume={volume}" for volume in cache.volumes]
    argv += [f"--volume={directory}:{directory}:ro" for directory in sources.directories]
    if sources.ca_bundle:
        argv += [f"--volume={sources.ca_bundle}:{CA_BUNDLE}:ro"]
    return [*argv, record.image, "/sbin/init"]


def hosts_file(record: Record) -> str:
    """Return /etc/hosts: every host of the lab by its name, on the network for data."""
    role = record.data_network.role
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    return (
        "\n".join([*lines, *(f"{one.addresses[role]} {one.name}" for one in record.hosts)]) + "\n"
    )


def seed_archive(files: dict[str, tuple[int, str]], links: dict[str, str]) -> bytes:
    """Pack files (mode, content) and symbolic links as a tar archive owned by root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, (mode, content) in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def seed(record: Record, host: HostRecord, paths: LabPaths, cache: SharedCache) -> None:
    """Give a created host its keys and its place in the shared tree, before its first start."""
    own = host_key(paths, host)
    public = ensure_key(own, host.name)
    operator = ensure_key(paths.key, f"lab {record.name}")
    tree = cache.make_host(record.token, host.name)
    files = {
        "etc/hosts": (0o644, hosts_file(record)),
        "etc/ssh/ssh_host_ed25519_key": (0o600, own.read_text()),
        "etc/ssh/ssh_host_ed25519_key.pub": (0o644, public + "\n"),
        "etc/ssh/sshd_config.d/lab.conf": (0o644, SSHD),
        "root/.ssh/authorized_keys": (0o600, operator + "\n"),
    }
    # Where root keeps clusters; on the shared file system, so that uv can link from its cache.
    links = {"opt/vllm-ansible": str(tree)}
    podman("cp", "-", f"{host.container}:/", data=seed_archive(files, links))


def host_key(paths: LabPaths, host: HostRecord) -> Path:
    """Return where the private key of a host itself is kept."""
    return paths.state / "host_keys" / host.name


def inspect_host(host: HostRecord) -> dict[str, Any] | None:
    """Return what podman knows about a host's container, or None where there is none."""
    name = host.id or host.container
    asked = run(["podman", "container", "inspect", name], check=False)
    if asked.returncode != 0:
        return None
    found: dict[str, Any] = json.loads(asked.stdout)[0]
    return found


def remove_host(host: HostRecord) -> None:
    """Remove one container; one that is gone already is no error."""
    if inspect_host(host) is not None:
        podman("rm", "--force", "--time", "0", "--volumes", host.id or host.container)


def wait_for_ssh(host: HostRecord, paths: LabPaths, address: str, timeout: float = 300) -> None:
    """Wait until the host answers a command over SSH and its systemd, if any, has settled."""
    options = ssh_options(paths.key, paths.known_hosts)
    ask = [
        "if [ -d /run/systemd/system ]; then systemctl is-system-running --wait; "
        "else echo running; fi"
    ]
    deadline = time.monotonic() + timeout
    while True:
        said = run(["ssh", *options, f"root@{address}", *ask], check=False, timeout=timeout)
        state = said.stdout.strip()
        if state == "running":
            return
        if state == "degraded":
            failed = run(
                ["ssh", *options, f"root@{address}", "systemctl --failed --plain --no-legend"]
            )
            # A process of ours that failed in an earlier run is no fault of the host.
            units = [one for one in failed.stdout.splitlines() if not one.startswith("vllm-")]
            if not units:
                return
            raise LabError(f"Host {host.name} started with failed units: {'; '.join(units)}")
        if time.monotonic() > deadline:
            raise LabError(
                f"Host {host.name} did not answer SSH at {address} within {timeout:.0f} s, last: "
                f"{said.stderr.strip() or state}; look with `podman logs {host.container}`."
            )
        time.sleep(0.2)  # a refused connection comes back at once
