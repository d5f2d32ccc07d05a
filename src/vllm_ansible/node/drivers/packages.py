"""Read which packages of NVIDIA's driver a host has, in which state, and what may change them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

# Run one command: arguments to exit status and standard output.
Run = Callable[[list[str]], "tuple[int, str]"]
DPKG_FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
RPM_FORMAT = "ii \t%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"
OURS = re.compile(
    r"nvidia|^cuda-drivers|^libcuda1$|^libnvcuvid|^libxnvctrl|^datacenter-gpu-manager"
)
# Half-installed, unpacked, half-configured (dpkg-query(1)): an installation died here.
BROKEN_STATES = "HUF"
# Of an rpm several kernels' builds may lie side by side.
SIDE_BY_SIDE = re.compile(r"^kmod-nvidia-(?!.*dkms)")
VERSION_LOCKS = "etc/dnf/plugins/versionlock.list"


def manager(root: Path) -> str:
    """Return `apt`, `dnf` or nothing, by the database that lies there."""
    if (root / "var/lib/dpkg/status").exists():
        return "apt"
    rpm = (root / "var/lib/rpm", root / "usr/lib/sysimage/rpm")
    return "dnf" if any(place.is_dir() for place in rpm) else ""


def packages(root: Path, kind: str, run: Run) -> dict[str, Any]:
    """Return packages (name, version, held), broken names, and who upgrades unasked.

    broken names every package that apt stumbles over, ours or not.
    """
    if kind == "apt":
        return _apt(run)
    return _dnf(root, run) if kind == "dnf" else {"packages": [], "broken": [], "unattended": False}


def parse(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return our packages and all broken ones from lines of state, name and version."""
    ours: list[dict[str, Any]] = []
    broken: list[str] = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 3 or len(fields[0]) < 2:
            continue
        state, name, version = fields
        reinstall = state[2:3] == "R"
        if state[1] in BROKEN_STATES or reinstall:
            broken.append(name)
        if OURS.search(name) and (state[1] not in "nc" or reinstall):
            ours.append({"name": name, "version": version, "held": state[0] == "h"})
    return ours, broken


def _apt(run: Run) -> dict[str, Any]:
    ours, broken = parse(run(["dpkg-query", "--show", f"--showformat={DPKG_FORMAT}"])[1])
    settings = run(["apt-config", "dump"])[1]
    switched_on = re.search(r'^APT::Periodic::Unattended-Upgrade "([^"0]\w*)";', settings, re.M)
    for pattern in re.findall(
        r'^Unattended-Upgrade::Package-Blacklist:: "([^"]+)";', settings, re.M
    ):
        for package in ours:
            # unattended-upgrades matches its patterns from the start of a name.
            package["held"] = package["held"] or bool(_matches(pattern, package["name"]))
    return {"packages": ours, "broken": broken, "unattended": bool(switched_on)}


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def _dnf(root: Path, run: Run) -> dict[str, Any]:
    ours, _ = parse(run(["rpm", "--query", "--all", "--queryformat", RPM_FORMAT])[1])
    names = [package["name"] for package in ours]
    # A transaction that died leaves the old and the new version of a package.
    broken = {one for one in names if names.count(one) > 1 and not SIDE_BY_SIDE.match(one)}
    locks = _read(root / VERSION_LOCKS).splitlines()
    for package in ours:
        lock = re.compile(re.escape(package["name"]) + r"-\d")
        package["held"] = any(lock.match(line) for line in locks)
    enabled = root / "etc/systemd/system/timers.target.wants"
    timers = ("dnf-automatic.timer", "dnf-automatic-install.timer")
    unattended = any((enabled / timer).is_symlink() for timer in timers)
    return {"packages": ours, "broken": sorted(broken), "unattended": unattended}


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
