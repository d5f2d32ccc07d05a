"""A package repository with stand-ins for NVIDIA's driver: an emulator, for apt alone.

The packages have the names, versions, dependencies, files and services of the vendor's, and
nothing inside: what they "build" is a text file, what they run sleeps. The index is made by
Debian's own tools and signed with a key that is made for it.

    python tests/emulators/driver_repository.py OUT --kernel 6.1.0 --system debian

writes OUT/repository (to be served over HTTP) and prints the fingerprint of OUT/repository/key.asc.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

VERSIONS = ("570.195.03", "580.126.20", "580.159.04", "595.71.05")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# DKMS builds for the running kernel where its headers are, and says so where they are not.
BUILD = """#!/bin/sh
set -e
modules=/lib/modules/$(uname -r)
if [ -e "$modules/build" ]; then
  mkdir -p "$modules/updates/dkms"
  echo {version} > "$modules/updates/dkms/nvidia.ko"
else
  echo "no headers of $(uname -r): no module was built" >&2
fi
"""
UNBUILD = """#!/bin/sh
rm -f /lib/modules/*/updates/dkms/nvidia.ko
"""
# The real one asks the loaded module for its version and ends where it is another.
FABRIC_MANAGER = """#!/bin/sh
[ "$(cat /sys/module/nvidia/version 2>/dev/null)" = {version} ] || exit 1
exec sleep infinity
"""
SLEEP = """#!/bin/sh
exec sleep infinity
"""
UNIT = """[Unit]
Description=Stand-in for {name}
[Service]
ExecStart={program}
[Install]
WantedBy=multi-user.target
"""
PIN = """Package: *nvidia* cuda-drivers* libcuda1* libxnvctrl*
Pin: version {branch}.*
Pin-Priority: 1000
"""


@dataclass
class Package:
    """One package: what dpkg-deb is given."""

    name: str
    version: str
    depends: str = ""
    files: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)


def service(name: str, version: str, program: str, text: str, **more: str) -> Package:
    """Return a package with one program that systemd runs."""
    unit = UNIT.format(name=name, program=f"/usr/bin/{program}")
    service_name = {"datacenter-gpu-manager-4-cuda13": "nvidia-dcgm"}.get(name, name)
    path = f"lib/systemd/system/{service_name}.service"
    return Package(name, version, files={path: unit}, programs={f"usr/bin/{program}": text}, **more)


def driver(version: str, system: str) -> Iterator[Package]:
    """Yield the packages of one driver, by the names that a system has for them."""
    branch = version.partition(".")[0]
    revision = f"{version}-1" if system == "debian" else f"{version}-1ubuntu1"
    # From 590 on, Ubuntu's packages lost the branch in their names.
    named = system == "ubuntu" and int(branch) < 590
    module = f"nvidia-dkms-{branch}-open" if named else "nvidia-kernel-open-dkms"
    library = f"libnvidia-compute-{branch}" if named else "libnvidia-ml1"
    yield Package(
        "nvidia-open", revision, f"{module} (= {revision}), nvidia-driver-cuda (= {revision})"
    )
    yield Package(
        module,
        revision,
        files={f"usr/src/nvidia-{version}/dkms.conf": f'PACKAGE_VERSION="{version}"\n'},
        scripts={"postinst": BUILD.format(version=version), "prerm": UNBUILD},
    )
    yield Package("nvidia-driver-cuda", revision, f"{library} (= {revision}), nvidia-persistenced")
    yield Package(
        library,
        revision,
        files={f"{LIBRARIES}/libnvidia-ml.so.{version}": f"stand-in {version}\n"},
        links={f"{LIBRARIES}/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}"},
    )
    manager = FABRIC_MANAGER.format(version=version)
    name = "nvidia-fabricmanager" if int(branch) >= 580 else f"nvidia-fabricmanager-{branch}"
    one = service(name, revision, "nv-fabricmanager", manager)
    one.files = {"lib/systemd/system/nvidia-fabricmanager.service": next(iter(one.files.values()))}
    yield one


def packages(kernel: str, system: str) -> Iterator[Package]:
    """Yield everything the repository holds."""
    for version in VERSIONS:
        yield from driver(version, system)
    for branch in sorted({version.partition(".")[0] for version in VERSIONS}):
        pin = {f"etc/apt/preferences.d/nvidia-driver-pinning-{branch}": PIN.format(branch=branch)}
        yield Package(f"nvidia-driver-pinning-{branch}", f"{branch}-1", files=pin)
    yield service("nvidia-persistenced", "580.159.04-1", "nvidia-persistenced", SLEEP)
    yield service("datacenter-gpu-manager-4-cuda13", "1:4.4.1-1", "nv-hostengine", SLEEP)
    headers = {f"lib/modules/{kernel}/build/Makefile": ""}
    # Above the distribution's own, which would take minutes to unpack.
    yield Package(f"linux-headers-{kernel}", "99:1", files=headers)


def build(package: Package, directory: Path) -> None:
    """Make one .deb."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        for path, text in {**package.files, **package.programs}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
            (root / path).chmod(0o755 if path in package.programs else 0o644)
        for path, target in package.links.items():
            (root / path).symlink_to(target)
        control = root / "DEBIAN"
        control.mkdir()
        depends = f"Depends: {package.depends}\n" if package.depends else ""
        (control / "control").write_text(
            f"Package: {package.name}\nVersion: {package.version}\nArchitecture: amd64\n"
            f"{depends}Maintainer: nobody <nobody@example.invalid>\n"
            "Description: stand-in for tests; holds no driver\n"
        )
        for name, text in package.scripts.items():
            (control / name).write_text(text)
            (control / name).chmod(0o755)
        version = package.version.rpartition(":")[2]  # as Debian names files
        target = directory / f"{package.name}_{version}_amd64.deb"
        run("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(root), str(target))


def index(repository: Path, home: Path) -> str:
    """Write and sign the index, and return the fingerprint of the key."""
    text = run("dpkg-scanpackages", "--multiversion", ".", cwd=repository).encode()
    (repository / "Packages").write_bytes(text)
    digest = hashlib.sha256(text).hexdigest()
    release = repository / "Release"
    release.write_text(
        "Origin: stand-in\nLabel: NVIDIA stand-in\nArchitectures: amd64\n"
        f"Date: {run('date', '--utc', '+%a, %d %b %Y %H:%M:%S UTC').strip()}\n"
        f"SHA256:\n {digest} {len(text)} Packages\n"
    )
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--yes", "--pinentry-mode", "loopback")
    who = "stand-in <nobody@example.invalid>"
    run(*gpg, "--passphrase", "", "--quick-generate-key", who, "rsa2048", "sign", "never")
    run(*gpg, "--clearsign", "--output", str(repository / "InRelease"), str(release))
    run(*gpg, "--armor", "--export", "--output", str(repository / "key.asc"), who)
    listed = run(*gpg, "--with-colons", "--list-keys")
    run("gpgconf", "--homedir", str(home), "--kill", "all")
    # The agent removes its sockets as it ends, which may be now.
    while home.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(home)
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))


def run(*argv: str, cwd: Path | None = None) -> str:
    """Run one command and return what it printed."""
    done = subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    """Build all packages and the index."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", required=True, help="release of the hosts' running kernel")
    parser.add_argument("--system", choices=["debian", "ubuntu"], default="debian")
    wanted = parser.parse_args()
    repository = wanted.out / "repository"
    repository.mkdir(parents=True)
    for package in packages(wanted.kernel, wanted.system):
        build(package, repository)
    print(index(repository, wanted.out / "gnupg"))


if __name__ == "__main__":
    main()
