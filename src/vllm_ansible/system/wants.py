"""What one host is to be, from the facts of its site and the role's variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_ansible.accelerators.platform import has_devices, platform
from vllm_ansible.system.efa import Installer

CONCERNS = (
    "limits",
    "hugepages",
    "efa",
    "hosts_file",
    "time",
    "network",
    "firewall",
    "container_runtime",
)
# What `auto` means with root; without it nothing is managed.
CAREFUL = {"efa": "check", "firewall": "check", "container_runtime": "skip"}


@dataclass(frozen=True)
class Wants:
    """One host among its peers; peers are data-plane addresses by inventory name."""

    name: str
    cluster: str
    root: bool
    systemd: bool
    accelerator: str
    accelerator_count: int
    address: str
    interface: str
    distribution: str
    peers: Mapping[str, str]
    first_port: int
    mtu: int = 0
    container_engine: str = "docker"
    efa_installer: Installer = field(default_factory=Installer)
    # What helps where a container's limits cannot be raised and somebody else starts it.
    limits: str = ""

    @property
    def several_hosts(self) -> bool:
        """Whether other hosts take part."""
        return bool(self.peers)

    @property
    def mark(self) -> str:
        """The comment of our rules in a firewall."""
        return f"vllm-ansible {self.cluster}"

    @property
    def red_hat(self) -> bool:
        """Whether packages have Red Hat's names."""
        return self.distribution in ("rhel", "rocky")


def wants(
    host: Mapping[str, Any], hosts: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> Wants:
    """Return what a host is to be; given are the variables of the role beside its modes."""
    return Wants(
        name=str(host["name"]),
        cluster=str(given["cluster"]),
        root=host["privileges"] == "root",
        systemd=host["pid1"] == "systemd",
        accelerator=str(host["accelerator"]),
        accelerator_count=int(host["accelerator_count"]),
        address=str(host["address"]),
        interface=str(host["interface"]),
        distribution=str(host["distribution"]),
        peers={
            str(one["name"]): str(one["address"]) for one in hosts if one["name"] != host["name"]
        },
        first_port=int(given["first_port"]),
        mtu=int(given["mtu"]),
        container_engine=str(given["container_engine"]),
        efa_installer=Installer(
            str(given["efa_installer"]), str(given["efa_installer_sha256"]).lower()
        ),
        limits=str(given.get("limits", "")),
    )


def mode_of(concern: str, asked: str, root: bool) -> str:
    """Return manage, check or skip for what was asked."""
    if asked != "auto":
        return asked
    mode = CAREFUL.get(concern, "manage")
    return "check" if mode == "manage" and not root else mode


def irrelevant(concern: str, want: Wants) -> str:
    """Return why a concern does not apply to a host, told before any look; empty where it does."""
    alone = "one host takes part"
    if concern in ("efa", "hosts_file", "time", "firewall") and not want.several_hosts:
        return alone
    if concern == "firewall" and not want.root:
        return "only root reads the rules"
    plain = not has_devices(want.accelerator)
    if concern == "hugepages" and plain:
        return "no accelerators"
    if concern == "efa" and not platform(want.accelerator).efa:
        return "no accelerators that run over EFA"
    if concern in ("limits", "network") and plain and not want.several_hosts:
        return "" if concern == "network" and want.mtu else f"{alone}, without accelerators"
    return ""
