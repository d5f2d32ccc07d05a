"""Versions that must be equal, or not too old, on every host."""

from __future__ import annotations

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.verify.preflight.check import (
    EVERYWHERE,
    FAIL,
    PASS,
    WARN,
    Check,
    Cluster,
    Row,
    differing,
    equal,
    release,
)
from vllm_ansible.verify.preflight.own import alone, own_checks

KERNEL = Check("kernel", "the kernel", "a note: it differs harmlessly until something else does")
PYTHON = Check(
    "python", "the system's Python", "Ray refuses a Python that differs even in its patch release"
)
GLIBC = Check("glibc", "the C library", "the engine's wheels are linked against a later one")
DRIVER = Check("driver", "the accelerators' driver", "collectives of different drivers hang")
FIRMWARE = Check(
    "firmware", "the accelerators' firmware", "cards that differ in firmware differ in clocks"
)
OWN = {name: one.versions for name, one in own_checks().items()}
CHECKS = (
    *(KERNEL, PYTHON, GLIBC, DRIVER),
    *(check for own in OWN.values() for check in own),
    FIRMWARE,
)
# What node code is written for.
OLDEST_PYTHON = (3, 9)
# manylinux_2_28, which torch's wheels carry since 2.6.
OLDEST_GLIBC = (2, 28)


def rows(cluster: Cluster) -> list[Row]:
    """Return the rows of all versions."""
    found = [_kernel(cluster), *_python(cluster)]
    found += [_glibc(cluster, host) for host in cluster.hosts]
    return [*found, _driver(cluster), *_own(cluster), _firmware(cluster)]


def _own(cluster: Cluster) -> list[Row]:
    found = []
    for name, checks in own_checks().items():
        hosts = [host for host in cluster.hosts if cluster.kind(host) == name]
        skipped = [check.skipped(EVERYWHERE, alone(name)) for check in checks.versions]
        found += checks.installed(cluster, hosts) if hosts else skipped
    return found


def _system(cluster: Cluster, name: str) -> dict[str, str]:
    return {host: str(look["system"][name]) for host, look in cluster.looks.items()}


def _kernel(cluster: Cluster) -> Row:
    told = differing(_system(cluster, "kernel"))[2]
    return KERNEL.row(PASS, EVERYWHERE, "none: it is only reported", told)


def _python(cluster: Cluster) -> list[Row]:
    versions = _system(cluster, "python")
    old = [host for host, version in versions.items() if release(version) < OLDEST_PYTHON]
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if old:
        told = ", ".join(f"{versions[host]} on {host}" for host in old)
        fix = "set ansible_python_interpreter to a later one, or install it"
        return [PYTHON.row(FAIL, ", ".join(old), f"{oldest} or later", told, fix)]
    if not cluster.several:
        host = next(iter(versions))
        return [PYTHON.row(PASS, host, f"{oldest} or later", versions[host])]
    fix = "install the same release everywhere; the stage install compares the engine's own Python"
    return [equal(PYTHON, versions, fix, WARN)]


def _glibc(cluster: Cluster, host: str) -> Row:
    version = str(cluster.looks[host]["system"]["glibc"])
    wanted = f"{'.'.join(map(str, OLDEST_GLIBC))} or later"
    verdict = PASS if release(version) >= OLDEST_GLIBC else FAIL
    fix = "install a supported distribution: a C library is not replaced in place"
    return GLIBC.judged(verdict, host, wanted, version or "another C library", fix)


def _driver(cluster: Cluster) -> Row:
    versions = {
        host: str(cluster.looks[host].get("devices", {}).get("driver", ""))
        or str(cluster.hosts[host].get("accelerators", {}).get("driver_version", ""))
        for host in cluster.hosts
        if has_devices(cluster.kind(host))
    }
    if not versions:
        return DRIVER.skipped(EVERYWHERE, "no accelerators, so no driver")
    fixes = [
        own.driver_fix
        for name, own in own_checks().items()
        if any(cluster.kind(host) == name for host in versions)
    ]
    fix = fixes[0] if fixes else "install the most common version on the others"
    return equal(DRIVER, versions, fix)


def _firmware(cluster: Cluster) -> Row:
    values = {}
    for host, look in cluster.looks.items():
        for device in look.get("devices", {}).get("devices", []):
            if device.get("firmware"):
                values[f"{host} device {device['index']}"] = str(device["firmware"])
    if not values:
        return FIRMWARE.skipped(EVERYWHERE, "no device here reports its firmware")
    fix = "ask the vendor or the cloud for one firmware on all cards"
    return equal(FIRMWARE, values, fix, WARN)
