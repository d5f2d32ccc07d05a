"""Repair what is safe to repair on a host: what to do, as data, from the checks that failed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# AWS's EFA installer reserves as many pages of 2 MiB.
EFA_HUGE_PAGES = 5128


@dataclass(frozen=True)
class Repair:
    """One thing to do: a file to write, a command to run, and what people are told."""

    check: str
    told: str
    path: str = ""
    content: str = ""
    commands: tuple[tuple[str, ...], ...] = ()


def without_loopback(hosts: str, hostname: str, address: str) -> str:
    """Return a hosts file in which a name is the host's own address and no loopback one."""
    lines = []
    for line in hosts.splitlines():
        words = line.partition("#")[0].split()
        if words and re.match(r"127\.|::1$", words[0]) and hostname in words[1:]:
            words.remove(hostname)
            line = " ".join(words)
            if len(words) == 1:
                continue
        lines.append(line)
    words_of = [line.partition("#")[0].split() for line in lines]
    already = any(words[:1] == [address] and hostname in words for words in words_of)
    return "\n".join([*lines, *([] if already else [f"{address} {hostname}"])]) + "\n"


def limits_file(asked: Mapping[str, Any], names: Sequence[str]) -> Repair:
    """Return the repair of limits where the supervisor of this host reads them."""
    limits, check = asked["limits"], names[0]
    words = ", ".join(f"{name} {limits[name]}" for name in names)
    if asked["supervisor"] == "systemd":
        # The last name wins over drop-ins of a site for all services.
        directory = f"{asked['etc']}/systemd/system/vllm-{asked['cluster']}-.service.d"
        content = "".join(f"Limit{name.upper()}={limits[name]}\n" for name in names)
        path = f"{directory}/zz-vllm-ansible.conf"
        return Repair(
            check,
            f"gave services of the cluster {words} by {path}",
            path,
            f"[Service]\n{content}",
            (("systemctl", "daemon-reload"),),
        )
    path = f"{asked['etc']}/security/limits.d/vllm-ansible.conf"
    # The asterisk does not mean root.
    content = "".join(
        f"{who} - {name} {str(limits[name]).replace('infinity', 'unlimited')}\n"
        for who in ("*", "root")
        for name in names
    )
    return Repair(check, f"gave every later login {words} by {path}", path, content)


def plan(asked: Mapping[str, Any], failing: Collection[str], hosts: str) -> list[Repair]:
    """Return the repairs of the checks that failed, with the content of the hosts file."""
    etc = asked["etc"]
    found = []
    if "hostname" in failing:
        name, address = asked["hostname"], asked["address"]
        path = f"{etc}/hosts"
        told = f"made {name} mean {address} in {path}"
        found.append(Repair("hostname", told, path, without_loopback(hosts, name, address)))
    if "shm" in failing:
        # Half of the memory is what the kernel gives a tmpfs by itself.
        remount = ("mount", "-o", "remount,size=50%", "/dev/shm")  # noqa: S108 where it is
        told = "made /dev/shm half of the memory, until the next boot"
        found.append(Repair("shm", told, commands=(remount,)))
    names = [name for name in ("memlock", "nofile") if name in failing]
    if names:
        found.append(limits_file(asked, names))
    if "hugepages" in failing:
        setting = f"vm.nr_hugepages={EFA_HUGE_PAGES}"
        path = f"{etc}/sysctl.d/60-vllm-ansible.conf"
        sysctl = ("sysctl", "-w", setting)
        told = f"set {setting}, kept by {path}"
        found.append(Repair("hugepages", told, path, f"{setting}\n", (sysctl,)))
    if "peer_memory" in failing:
        module = asked["peer_module"]
        path = f"{etc}/modules-load.d/{module}.conf"
        told = f"loaded {module}, kept by {path}"
        modprobe = ("modprobe", module)
        found.append(Repair("peer_memory", told, path, f"{module}\n", (modprobe,)))
    if "xid" in failing and asked["reset_devices"]:
        pcis = ",".join(asked["reset_devices"])
        reset = ("nvidia-smi", "--gpu-reset", "-i", pcis)
        found.append(Repair("xid", f"reset the devices {pcis}", commands=(reset,)))
    return found


def write(repair: Repair) -> None:
    """Write the file of a repair in place, since one that is mounted cannot be replaced."""
    os.makedirs(os.path.dirname(repair.path), mode=0o755, exist_ok=True)
    with open(repair.path, "w", encoding="utf-8") as handle:
        handle.write(repair.content)
