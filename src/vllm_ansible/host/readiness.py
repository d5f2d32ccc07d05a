"""What one host lacks, as measurements that a gate judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.accelerators.platform import has_devices

GIB = 1 << 30
# Measurement: what, ok, expected, found, where, fix. See action_plugins/gate.py.
Measurement = dict[str, Any]


def lacks(host: Mapping[str, Any]) -> list[str]:
    """Return what only the system's packages can give a host and it has not."""
    missing = [] if host["has_venv"] else ["Python's venv"]
    if not has_devices(host["accelerator"]):
        # vLLM's CPU library links libnuma; nothing is compiled at run time there.
        return missing + [f"lib{name}" for name in host["missing_libraries"] if name == "numa"]
    if not host["has_compiler"]:
        missing.append("a C compiler")
    if not host["has_python_headers"]:
        missing.append("Python's headers")
    return missing


def measurements(
    host: Mapping[str, Any],
    missing: Sequence[str],
    minimum_disk_gib: float,
    mode: str,
    install_command: str,
) -> list[Measurement]:
    """Return one measurement for packages, devices and disk of a host."""
    free = host["disk_free_bytes"] / GIB
    name = str(host["name"])
    return [
        {
            "what": "the system's packages",
            "ok": not missing or mode == "skip",
            "expected": "Python's venv, the libraries and the compiler that the engine needs",
            "found": "missing: " + ", ".join(missing) if missing else "all there",
            "where": name,
            "fix": f"as root on {name}: {install_command}",
        },
        {
            "what": "the accelerators",
            "ok": host["accelerator_count"] > 0,
            "expected": f"at least one {host['accelerator']} device that answers its driver",
            "found": f"{host['accelerator_count']} devices, driver "
            f"{host['accelerators']['driver_version'] or 'not loaded'}",
            "where": name,
            "fix": "load or repair the driver; what the bus does not show is a hardware fault",
        },
        {
            "what": "free disk space",
            "ok": free >= minimum_disk_gib,
            "expected": f"at least {minimum_disk_gib:g} GiB for environment and logs",
            "found": f"{free:.1f} GiB free",
            "where": f"{name}:{host['cluster_dir']}",
            "fix": "free some space, or set cluster_dir to a larger disk",
        },
    ]


def alike(hosts: Sequence[Mapping[str, Any]]) -> list[Measurement]:
    """Return one measurement for each thing that must be equal on all hosts of a cluster."""
    found = []
    for key, what, fix in (
        ("accelerator", "the kind of accelerator", "use one cluster for each kind"),
        ("architecture", "the architecture", "use one cluster for each architecture"),
        ("driver_version", "the driver version", "install the same driver everywhere"),
    ):
        values: dict[str, list[str]] = {}
        for host in hosts:
            value = host[key] if key in host else host["accelerators"][key]
            values.setdefault(str(value), []).append(str(host["name"]))
        common = max(values, key=lambda value: len(values[value]))
        odd = [name for value, names in values.items() if value != common for name in names]
        found.append(
            {
                "what": f"{what} being equal",
                "ok": len(values) == 1,
                "expected": f"{common or 'none'} everywhere",
                "found": "; ".join(f"{v or 'none'} on {', '.join(n)}" for v, n in values.items()),
                "where": ", ".join(odd) or "all hosts",
                "fix": fix,
            }
        )
    return found


def summary(hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return one line about the hosts of a cluster."""
    devices = sum(int(host["accelerator_count"]) for host in hosts)
    kinds = ", ".join(sorted({str(host["accelerator"]) for host in hosts}))
    addresses = ", ".join(str(host["address"]) for host in hosts[:4])
    more = f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""
    plural = "s" if len(hosts) != 1 else ""
    return f"{len(hosts)} host{plural}, {devices} x {kinds}, data plane {addresses}{more}"
